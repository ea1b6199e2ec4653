"""Every published format, on excerpts of the real files and on rows of its documented shape."""

import gzip
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from evenflow.core.errors import ConfigError
from evenflow.workload import formats, rows
from evenflow.workload.columns import ColumnNames, parse_columns
from evenflow.workload.formats import Reading, parse_trace, read_trace
from evenflow.workload.statistics import describe, statistics_of
from evenflow.workload.trace import PrefixBlocks, Trace, TraceError, TraceRequest
from evenflow.workload.trace_file import write_trace

DATA = Path(__file__).parents[2] / "data" / "traces"


def parse(*lines: str, reading: Reading = Reading()) -> Trace:
    return parse_trace(io.StringIO("\n".join(lines)), "file", reading)


def json_lines(*rows: dict[str, object], reading: Reading = Reading()) -> Trace:
    return parse(*(json.dumps(row) for row in rows), reading=reading)


@pytest.mark.parametrize(
    ("file", "name", "unit", "num", "first", "last"),
    [
        (
            "azure_code_excerpt.csv",
            "azure",
            "date and time",
            60,
            TraceRequest(0.0, 4808, 10),
            TraceRequest(38.887152, 432, 10),
        ),
        (
            "servegen_excerpt.csv",
            "servegen",
            "s",
            80,
            TraceRequest(0.0, 357, 434, tenant="28"),
            TraceRequest(1.9829, 8, 1093, tenant="35"),
        ),
        (
            "vllm_run_excerpt.jsonl",
            "vllm-run",
            "s",
            40,
            TraceRequest(0.0, 2358, 531),
            TraceRequest(3.472693, 1484, 574),
        ),
        (
            "mooncake_conversation_excerpt.jsonl",
            "mooncake",
            "ms",
            40,
            TraceRequest(0.0, 6758, 500, prefix=PrefixBlocks(512, tuple(range(14)))),
            TraceRequest(12.0, 2038, 524, prefix=PrefixBlocks(512, (0, 972, 973, 974))),
        ),
        ("lengths_sharegpt_excerpt.csv", "lengths", None, 40, TraceRequest(0.0, 74, 918), TraceRequest(0.0, 4754, 387)),
    ],
)
def test_a_published_file_is_read_as_its_owner_wrote_it(
    file: str, name: str, unit: str | None, num: int, first: TraceRequest, last: TraceRequest
) -> None:
    trace = read_trace(DATA / file)
    assert (trace.format_name, trace.time_unit, trace.num_rows, len(trace.requests)) == (name, unit, num, num)
    for read, expected in ((trace.requests[0], first), (trace.requests[-1], last)):
        assert read.arrival_seconds == pytest.approx(expected.arrival_seconds, abs=1e-6)
        assert (read.num_prompt_tokens, read.num_output_tokens) == (
            expected.num_prompt_tokens,
            expected.num_output_tokens,
        )
        assert (read.prefix, read.tenant) == (expected.prefix, expected.tenant)


def test_every_excerpt_is_named_in_the_notice() -> None:
    notice = (DATA / "NOTICE").read_text(encoding="utf-8")
    assert all(path.name in notice for path in DATA.iterdir() if path.name != "NOTICE")


@pytest.mark.parametrize(
    ("rows", "name", "expected"),
    [
        (
            ["arrived_at,num_prefill_tokens,num_decode_tokens", "0.5,10,20", "2.0,11,21"],
            "vidur",
            (TraceRequest(0.0, 10, 20), TraceRequest(1.5, 11, 21)),
        ),
        (
            [
                "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size",
                "0,2,0,0.25,1,100,5",
                "1,2,0,1.25,1,200,6",
            ],
            "splitwise-sim",
            (TraceRequest(0.0, 100, 5), TraceRequest(1.0, 200, 6)),
        ),
        (
            ["timestamp,input_length,output_length", "0,7,8", "3.5,9,10"],
            "guidellm",
            (TraceRequest(0.0, 7, 8), TraceRequest(3.5, 9, 10)),
        ),
        (
            [
                "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
                "5,ChatGPT,472,18,490,Conversation log",
                "45,ChatGPT,1087,0,1087,Conversation log",
                "118,GPT-4,417,276,693,API log",
            ],
            "burstgpt",
            (TraceRequest(0.0, 472, 18), TraceRequest(113.0, 417, 276)),
        ),
        (
            ['{"timestamp": 1500, "input_length": 40, "output_length": 5, "hash_ids": [3, 4, 5]}'],
            "mooncake",
            (TraceRequest(0.0, 40, 5, prefix=PrefixBlocks(16, (3, 4, 5))),),
        ),
        (
            [
                '{"chat_id": 7, "parent_chat_id": -1, "timestamp": 61.1, "input_length": 30, "output_length": 9,'
                ' "type": "text", "turn": 1, "hash_ids": [1, 2]}',
                '{"chat_id": 9, "parent_chat_id": 7, "timestamp": 63.6, "input_length": 48, "output_length": 3,'
                ' "type": "text", "turn": 2, "hash_ids": [1, 2, 8]}',
            ],
            "qwen-bailian",
            (
                TraceRequest(0.0, 30, 9, name="7", service_class="text", prefix=PrefixBlocks(16, (1, 2))),
                TraceRequest(
                    2.5, 48, 3, name="9", parent="7", service_class="text", prefix=PrefixBlocks(16, (1, 2, 8))
                ),
            ),
        ),
    ],
)
def test_a_documented_shape_is_recognised_by_its_columns(
    rows: Sequence[str], name: str, expected: tuple[TraceRequest, ...]
) -> None:
    trace = parse(*rows)
    assert trace.format_name == name
    assert trace.requests == expected
    assert trace.num_rows == len(trace.requests) + sum(num for _, num in trace.dropped)


def test_what_was_dropped_is_counted_and_said() -> None:
    trace = parse("Timestamp,Model,Request tokens,Response tokens", "5,m,472,18", "6,m,5,0")
    assert trace.describe() == (
        "file: burstgpt, 2 rows = 1 kept + 1 dropped (no prompt or no output tokens), times as s"
    )


# ---- text


def count(text: str) -> int:
    return len(text.split())


COUNTING = Reading(count_tokens=count)


def test_sharegpt_gives_the_first_question_and_its_answer() -> None:
    conversations: list[dict[str, object]] = [
        {"id": "a", "conversations": [{"from": "human", "value": "one two"}, {"from": "gpt", "value": "three"}]},
        {"id": "b", "conversations": [{"from": "gpt", "value": "alone"}]},
    ]
    trace = parse(json.dumps(conversations), reading=COUNTING)
    assert trace.requests == (TraceRequest(0.0, 2, 1, text="one two"),)
    assert (trace.num_rows, trace.dropped, trace.time_unit) == (2, (("no prompt or no output tokens", 1),), None)


def test_a_batch_file_gives_prompts_and_messages() -> None:
    trace = json_lines(
        {"custom_id": "x", "method": "POST", "url": "/v1/completions", "body": {"prompt": "a b c", "max_tokens": 5}},
        {
            "custom_id": "y",
            "body": {
                "messages": [{"role": "system", "content": "be"}, {"role": "user", "content": [{"text": "so"}]}],
                "max_completion_tokens": 6,
            },
        },
        reading=COUNTING,
    )
    assert trace.format_name == "openai-batch"
    assert trace.requests == (
        TraceRequest(0.0, 3, 5, name="x", text="a b c"),
        TraceRequest(0.0, 2, 6, name="y", text="be\nso"),
    )


def test_custom_lines_give_prompt_and_length() -> None:
    trace = json_lines({"prompt": "a b", "output_tokens": 12}, reading=COUNTING)
    assert trace.requests == (TraceRequest(0.0, 2, 12, text="a b"),)


def test_text_needs_a_tokenizer() -> None:
    with pytest.raises(TraceError, match="file holds text; its tokens can only be counted with a tokenizer"):
        json_lines({"prompt": "a b", "output_tokens": 12})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "a"}, "file line 1, column output_tokens: is missing in this row"),
        ({"custom_id": "x", "body": {"prompt": "a"}}, "column body: has no max_tokens above 0"),
        ({"custom_id": "x", "body": {"max_tokens": 4}}, "column body: has neither a prompt nor messages"),
        ({"custom_id": "x", "body": {"prompt": 3, "max_tokens": 4}}, "column body: Expected `str | null`"),
        ({"conversations": "no"}, "column conversations: Expected `array`"),
    ],
)
def test_text_of_another_shape_is_told_where(row: dict[str, object], message: str) -> None:
    with pytest.raises(TraceError) as caught:
        json_lines(row, reading=COUNTING)
    assert message in str(caught.value)


# ---- columns and units that the user names


def test_any_file_is_read_by_the_columns_that_are_named() -> None:
    names = parse_columns("arrival=when, input=in_len,output=out_len,class=tier,tenant=who,session=chat")
    trace = parse(
        "when,in_len,out_len,tier,who,chat",
        "2000,5,6,gold,ann,1",
        "4000,7,8,,bob,2",
        reading=Reading(columns=names, time_unit="ms"),
    )
    assert trace.requests == (
        TraceRequest(0.0, 5, 6, session="1", service_class="gold", tenant="ann"),
        TraceRequest(2.0, 7, 8, session="2", tenant="bob"),
    )
    assert trace.time_unit == "ms"


def test_a_known_format_takes_labels_from_more_columns() -> None:
    trace = parse(
        "arrived_at,num_prefill_tokens,num_decode_tokens,team",
        "0,1,2,red",
        reading=Reading(columns=ColumnNames(tenant="team")),
    )
    assert trace.format_name == "vidur"
    assert trace.requests[0].tenant == "red"


@pytest.mark.parametrize("text", ["", "arrival", "when=ts", "input=", "input=a,input=b"])
def test_columns_that_are_not_named_well_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="columns takes KEY=COLUMN"):
        parse_columns(text)


# ---- what is wrong with a file


@pytest.mark.parametrize(
    ("rows", "reading", "message"),
    [
        (
            ["arrived_at,num_prefil_tokens,num_decode_tokens", "0,1,2"],
            Reading(),
            "file line 1: looks like vidur, but column num_prefill_tokens is missing (is num_prefil_tokens meant?)",
        ),
        (["a,b", "1,2"], Reading(), "no known trace format has these columns (a, b). Known are azure, qwen-bailian"),
        (["a,b", "1,2"], Reading(columns=ColumnNames(input="x", output="b")), "file has no column x; it has a, b"),
        (["arrival_s,input_tokens,output_tokens", "-1,2,3"], Reading(), "line 2, column arrival_s: -1.0 is negative"),
        (["arrival_s,input_tokens,output_tokens", "nan,2,3"], Reading(), "column arrival_s: nan is not a time"),
        (["arrival_s,input_tokens,output_tokens", "x,2,3"], Reading(), "column arrival_s: 'x' is not a number"),
        (
            ["arrival_s,input_tokens,output_tokens", "5,2,3", "4,2,3"],
            Reading(),
            "line 3, column arrival_s: is 1.000000 s before the line above; sort the file by time",
        ),
        (
            ["arrival_s,input_tokens,output_tokens", "5,0,3"],
            Reading(),
            "none of its 1 rows has both a prompt and an out",
        ),
        (["arrival_s,input_tokens,output_tokens", "5,1,3"], Reading(time_unit="h"), "time_unit must be one of s, ms"),
        (
            ["TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:15:46,1,3"],
            Reading(time_unit="ms"),
            "azure files have dates and times; time_unit does not apply",
        ),
        (
            ['{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1]}'],
            Reading(),
            "line 1, column hash_ids: 1 blocks for 600 tokens; it would have to be 2 of 512 or 38 of 16",
        ),
        (
            ['{"timestamp": 0, "input_length": 6, "output_length": 5, "hash_ids": [1.5]}'],
            Reading(),
            "column hash_ids: [1.5] is not a list of whole numbers",
        ),
        (
            ['{"timestamp": true, "input_length": 6, "output_length": 5, "hash_ids": [1]}'],
            Reading(),
            "column timestamp: 'True' is not a number",
        ),
        (
            ['{"timestamp": 0, "input_length": 6, "output_length": 5, "hash_ids": [1]}', "{oh"],
            Reading(),
            "file line 2: is not a JSON object",
        ),
        (["[1, 2]"], Reading(), "file: is not a JSON array of objects"),
        (["[]"], Reading(), "file has no rows"),
        (["{" + " " * (17 * 2**20)], Reading(), "file line 1: is longer than"),
    ],
)
def test_a_file_is_told_what_is_wrong_and_where(rows: Sequence[str], reading: Reading, message: str) -> None:
    with pytest.raises((TraceError, ConfigError)) as caught:
        parse(*rows, reading=reading)
    assert message in str(caught.value)


def timed(times: Sequence[float]) -> list[str]:
    return ["arrival_s,input_tokens,output_tokens", *(f"{time!r},2,3" for time in times)]


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (
            [float(i) for i in range(100)] + [100_000.0 + 1000.0 * i for i in range(100)],
            "does it mix two units of time?",
        ),
        ([1.7e9 + i for i in range(5)] + [1.7e12 + 1000 * i for i in range(5)], "are its times of mixed units"),
        ([1000.0 * i for i in range(200)], "are not plausible; say the unit of its times with --time-unit"),
        ([1e-6 * i for i in range(200)], "are not plausible"),
        ([0.0] * 200, "are not plausible"),
    ],
)
def test_times_that_cannot_be_are_refused_not_guessed(times: Sequence[float], message: str) -> None:
    with pytest.raises(TraceError) as caught:
        parse(*timed(times))
    assert message in str(caught.value)


def test_the_unit_may_be_said() -> None:
    trace = parse(*timed([1000.0 * i for i in range(200)]), reading=Reading(time_unit="ms"))
    assert trace.span_seconds == pytest.approx(199.0)


def test_bursts_and_pauses_are_no_mixed_units() -> None:
    quiet_then_busy = [10.0 * i for i in range(100)] + [1000.0 + 0.1 * i for i in range(100)]
    assert len(parse(*timed(quiet_then_busy)).requests) == 200


def test_a_truncated_json_file_says_how_far_it_could_be_read(tmp_path: Path) -> None:
    whole = "\n".join(
        json.dumps({"timestamp": i * 37, "input_length": 5, "output_length": i % 7 + 1, "hash_ids": [i]})
        for i in range(5000)
    )
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(gzip.compress(whole.encode())[:-200])
    with pytest.raises(TraceError, match=r"trace\.jsonl\.gz after line \d{4}: cannot be read further"):
        read_trace(path)


# ---- evenflow's own file


def test_a_trace_comes_back_from_its_file_as_it_was(tmp_path: Path) -> None:
    requests = (
        TraceRequest(0.0, 40, 3, name="a", session="s", prefix=PrefixBlocks(16, (1, 2, 3)), tenant="t"),
        TraceRequest(0.123456789, 5, 6, parent="a", service_class="gold", text="hello\nworld"),
    )
    trace = Trace(str(tmp_path / "t.jsonl"), "evenflow", requests, 2)
    write_trace(trace, tmp_path / "t.jsonl")
    assert read_trace(tmp_path / "t.jsonl") == trace


def test_prefix_blocks_must_cover_the_prompt() -> None:
    row = {"arrival_s": 0, "input_tokens": 40, "output_tokens": 3, "block_tokens": 16, "prefix_blocks": [1]}
    with pytest.raises(TraceError, match="column prefix_blocks: 1 blocks of 16 for 40 tokens"):
        json_lines(row)


# ---- statistics


def test_statistics_of_a_trace_that_can_be_computed_by_hand() -> None:
    blocks = [(1, 2), (1, 3), (1, 2, 4)]
    trace = Trace(
        "t",
        "x",
        tuple(
            TraceRequest(time, 16 * len(ids) - 4, out, prefix=PrefixBlocks(16, ids))
            for time, out, ids in zip((0.0, 1.0, 4.0), (1, 2, 6), blocks, strict=True)
        ),
        3,
    )
    found = statistics_of(trace)
    assert (found.num_requests, found.span_seconds, found.rate) == (3, 4.0, 0.75)
    assert found.gap_cv == pytest.approx(0.5)
    assert found.dispersion == pytest.approx(0.24 / 0.6)
    assert (found.output.mean, found.output.p50, found.output.max) == (3.0, 2.0, 6)
    # The second shares one block, the third both of the first: 16 + 32 of 28 + 28 + 44.
    assert found.reusable_share == pytest.approx(0.48)
    assert "48.0% of prompt tokens repeat a prefix" in describe(found)


def test_without_times_there_is_no_rate() -> None:
    found = statistics_of(read_trace(DATA / "lengths_sharegpt_excerpt.csv"))
    assert (found.rate, found.gap_cv, found.dispersion, found.reusable_share) == (None, None, None, None)


TRACES = Path(os.environ.get("EVENFLOW_TRACES", "/nonexistent"))

# As the folder's README has them: n, rate, CV, D(1s), then mean, P50, P95, P99 and max of inputs and of outputs.
# Its row of the vLLM runs is that of the one here; the other three differ a little.
PUBLISHED = {
    "azure_llm_2023_conv.csv.gz": (
        (19366, 5.53, 1.09, 1.39),
        (1155, 1020, 4083, 4142, 14050),
        (211, 129, 451, 601, 1000),
    ),
    "azure_llm_2023_code.csv.gz": ((8819, 2.57, 13.15, 13.18), (2048, 1469, 7303, 7436, 7437), (28, 13, 90, 251, 1899)),
    "mooncake_conversation.jsonl.gz": (
        (12031, 3.40, 3.03, 7.89),
        (12035, 6909, 39550, 85400, 126195),
        (343, 350, 698, 1118, 2000),
    ),
    "mooncake_synthetic.jsonl.gz": (
        (3993, 3.91, 1.01, 1.09),
        (15325, 11587, 48904, 66456, 191378),
        (149, 69, 519, 768, 893),
    ),
    "servegen_r1_sampled_30min.csv.gz": (
        (72315, 40.2, 1.22, 2.35),
        (684, 335, 1877, 11999, 54997),
        (811, 539, 1640, 4553, 30354),
    ),
    "vllm_run_rtxpro6000_llama31_8b.requests.jsonl.gz": (
        (300, 10.3, 0.94, 1.1),
        (857, 731, 1748, 2765, 3998),
        (653, 632, 773, 784, 1021),
    ),
}


@pytest.mark.slow
@pytest.mark.skipif(not TRACES.is_dir(), reason="EVENFLOW_TRACES names no folder of whole traces")
@pytest.mark.parametrize("file", PUBLISHED)
def test_whole_files_have_the_published_statistics(file: str) -> None:
    (num, rate, cv, dispersion), prompt, output = PUBLISHED[file]
    trace = read_trace(TRACES / file)
    assert trace.num_rows == num == len(trace.requests) + sum(n for _, n in trace.dropped)
    found = statistics_of(trace)
    assert found.rate == pytest.approx(rate, abs=0.05 if rate > 9 else 0.005)
    assert found.gap_cv == pytest.approx(cv, abs=0.005)
    assert found.dispersion == pytest.approx(dispersion, abs=0.05 if num == 300 else 0.005)
    for lengths, published in ((found.prompt, prompt), (found.output, output)):
        assert (lengths.mean, lengths.p50, lengths.p95, lengths.p99, lengths.max) == pytest.approx(published, abs=1.0)
    shares = {"mooncake_conversation.jsonl.gz": 0.374, "mooncake_synthetic.jsonl.gz": 0.651}
    if file in shares:
        assert found.reusable_share == pytest.approx(shares[file], abs=0.0005)


@pytest.mark.slow
@pytest.mark.skipif(not TRACES.is_dir(), reason="EVENFLOW_TRACES names no folder of whole traces")
def test_every_measured_run_is_read() -> None:
    runs = sorted(TRACES.glob("vllm_run_*.requests.jsonl.gz"))
    assert len(runs) == 4
    assert [len(read_trace(run).requests) for run in runs] == [300] * 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a" * 200_000 + ",arrival_s\n", "file line 1: is not CSV (field larger"),
        ('{"a":' * 100_000, "file line 1: is not a JSON object (maximum recursion depth"),
        ('[{"a":' + "[" * 100_000, "file: is not a JSON array of objects (maximum recursion depth"),
    ],
)
def test_what_is_too_deep_or_too_wide_is_said_to_be_so(text: str, message: str) -> None:
    with pytest.raises(TraceError) as caught:
        parse(text)
    assert message in str(caught.value)


def test_a_packed_file_that_never_ends_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "MAX_ROWS", 10)
    monkeypatch.setattr(rows, "MAX_LINES", 20)
    head, row = "arrival_s,input_tokens,output_tokens", "0,1,1"
    assert len(parse(head, *[row] * 10).requests) == 10
    assert len(parse(head, *[row] * 12, reading=Reading(limit=10)).requests) == 10
    with pytest.raises(TraceError, match="file has more than 10 rows; read only the first of them with --limit"):
        parse(head, *[row] * 11)
    with pytest.raises(TraceError, match="file has more than 20 lines"):
        parse(head, *[""] * 30)
    assert len(parse(head, row, reading=Reading(limit=10**30)).requests) == 1


def test_a_pipe_is_refused_because_it_can_be_read_only_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    for path in (tmp_path / "pipe.csv", Path("/dev/zero")):
        with pytest.raises(TraceError, match="is a pipe or a device, and is read more than once; write it to a file"):
            read_trace(path)
