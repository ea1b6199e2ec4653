"""What a run comes to, whether it may be believed, and who met what they were promised."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from evenflow.core.errors import ConfigError
from evenflow.replay.measure import Window, length_group, measure, window_of
from evenflow.replay.record import Record
from evenflow.replay.request import Reason, TokenCounts
from evenflow.replay.slo import Bound, Objectives, parse_bounds, parse_seconds
from evenflow.replay.verdict import judge
from records import failed, record, unsent

STEADY = [record(index, index * 0.1) for index in range(300)]


def row(records: Sequence[Record], name: str, warm_up: float | None = 0.0):  # type: ignore[no-untyped-def]  # MetricRow
    return next(row for row in measure(records, None, warm_up).rows if row.name == name)


def test_each_latency_is_what_its_name_says() -> None:
    one = record(0, 2.0, ttft=0.5, gaps=(0.1, 0.3), intended=1.75, allowed=1.9)
    assert one.ttft == pytest.approx(0.75)
    assert one.ttft_from_send == pytest.approx(0.5)
    assert one.tpot == pytest.approx(0.2)
    assert one.e2e == pytest.approx(1.15)
    assert one.dispatch_lag == pytest.approx(0.1)
    assert one.token_gaps() == pytest.approx([0.1, 0.3])


def test_gaps_per_token_sum_to_the_span_of_the_answer() -> None:
    one = record(0, 0.0, chunk_times=(1.0, 1.4, 1.5), chunk_tokens=(3, 4, 1))
    assert one.token_gaps() == pytest.approx([0.0, 0.0, 0.1, 0.1, 0.1, 0.1, 0.1])
    assert one.chunk_gaps() == pytest.approx([0.4, 0.1])
    assert one.tpot == pytest.approx(0.5 / 7)


def test_one_token_has_no_time_per_token_and_is_counted_apart() -> None:
    records = [*STEADY, record(300, 30.0, gaps=())]
    measured = measure(records, None, 0.0)
    assert measured.num_without_tpot == 1
    assert row(records, "tpot").tail.num_observations == 300
    assert row(records, "ttft").tail.num_observations == 301


# ---- windows


def test_warm_up_and_drain_are_cut() -> None:
    assert window_of(STEADY, 5.0) == Window(5.0, 299 * 0.1)
    assert window_of(STEADY, None).start == pytest.approx(2.99), "a tenth of what takes 20 s and more"
    assert window_of(STEADY[:100], None).start == 0.0, "nothing of what is shorter"
    measured = measure(STEADY, None, 5.0)
    assert measured.num_in_window == 250
    assert measured.num_planned == 300


def test_a_drain_does_not_water_down_the_throughput() -> None:
    steady = measure(STEADY, None, 0.0).rates
    straggler = record(300, 29.9, gaps=(1.0,) * 600)
    assert straggler.finished is not None
    assert straggler.finished > 600.0
    assert measure([*STEADY, straggler], None, 0.0).rates.output_tokens == pytest.approx(steady.output_tokens, rel=0.01)
    assert steady.offered == pytest.approx(10.0, rel=0.01)
    assert steady.output_tokens == pytest.approx(40.0, rel=0.02)


def test_requests_all_at_once_are_measured_until_the_last_answer() -> None:
    measured = measure([record(index, 0.0, gaps=(0.5,) * 10) for index in range(20)], None, None)
    assert measured.window.start == 0.0
    assert measured.window.end == pytest.approx(5.1)
    assert measured.rates.output_tokens == pytest.approx(220 / 5.1)
    one = measure([record(0, 0.0001, gaps=(0.5,) * 10)], None, None)
    assert one.rates.offered == pytest.approx(1 / 5.1, rel=0.01), "one request is no rate of thousands"


def test_nothing_sent_gives_no_number() -> None:
    measured = measure([unsent(index, index * 1.0) for index in range(5)], None, None)
    assert measured.num_unsent == 5
    assert measured.rates.output_tokens == measured.rates.offered == 0.0
    assert all(each.mean is None and each.tail.percentiles == (None, None, None) for each in measured.rows)


def test_a_percentile_that_the_sample_cannot_carry_is_withheld() -> None:
    tail = row(STEADY, "ttft").tail
    assert tail.p50 is not None
    assert tail.p95 is not None
    assert tail.p99 is None, "300 observations leave 3 above it"
    assert row(STEADY, "itl").tail.p99 == pytest.approx(0.02)


def test_groups_are_by_what_was_asked_for() -> None:
    short, long = record(0, 0.0, prompt=128, max_tokens=32), record(1, 0.1, prompt=129, max_tokens=600)
    assert (length_group(short), length_group(long)) == ("1-128 in, 1-32 out", "129-512 in, >512 out")
    assert length_group(record(2, 0.2, prompt=9000, max_tokens=100)) == ">8192 in, 33-128 out"


def test_groups_by_length_class_and_tenant_add_up() -> None:
    records = [
        replace(each, service_class="gold" if index % 3 else "flex", tenant=f"t{index % 2}")
        for index, each in enumerate(STEADY)
    ]
    records[7] = replace(failed(7, 0.7), service_class="gold", tenant="t1")
    groups = measure(records, None, 0.0).groups
    for kind in ("lengths", "class", "tenant"):
        members = [group for group in groups if group.kind == kind]
        assert sum(group.num_requests for group in members) == 300
        assert sum(group.num_failed for group in members) == 1
    assert [(g.name, g.num_requests) for g in groups if g.kind == "class"] == [("flex", 100), ("gold", 200)]


# ---- objectives


@pytest.mark.parametrize(
    ("text", "seconds"), [("1s", 1.0), ("150ms", 0.15), ("2m", 120.0), ("1.5", 1.5), (".5h", 1800.0), ("30us", 3e-5)]
)
def test_times_are_written_with_their_unit(text: str, seconds: float) -> None:
    assert parse_seconds(text, "x") == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "-1s", "1 week", "1s2", "nan", "inf"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="window must be a time"):
        parse_seconds(text, "window")


def test_objectives_are_per_request_and_per_class() -> None:
    assert parse_bounds("ttft=1s, gold:itl=50ms") == (Bound(None, "ttft", 1.0), Bound("gold", "itl", 0.05))
    objectives = Objectives(parse_bounds("ttft=50ms,gold:ttft=200ms"))
    plain = record(0, 0.0, ttft=0.1)
    assert not objectives.met(plain)
    assert objectives.met(replace(plain, service_class="gold"))
    assert not objectives.met(replace(plain, service_class="flex"))


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("ttft=100ms", True),
        ("ttft=99ms", False),
        ("itl=300ms", True),
        ("itl=299ms", False),
        ("tpot=200ms", True),
        ("tpot=199ms", False),
        ("e2e=500ms", True),
        ("e2e=499ms", False),
        ("ttft=1s,itl=1ms", False),
    ],
)
def test_every_bound_is_kept_or_the_request_is_not_good(text: str, met: bool) -> None:
    one = record(0, 0.0, ttft=0.1, gaps=(0.1, 0.3))
    rounded = replace(one, chunk_times=tuple(round(t, 9) for t in one.chunk_times), finished=0.5)
    assert Objectives(parse_bounds(text)).met(rounded) is met


def test_one_token_has_no_tpot_to_pass_and_a_failure_passes_nothing() -> None:
    objectives = Objectives(parse_bounds("tpot=1ms,itl=1ms"))
    assert objectives.met(record(0, 0.0, gaps=()))
    assert not objectives.met(failed(0, 0.0))


@pytest.mark.parametrize("text", ["", "ttft", "ttft=", "p99=1s", "ttft=1s,ttft=2s", "ttft=x"])
def test_what_is_no_objective_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_bounds(text)


def test_goodput_counts_good_requests_per_second() -> None:
    mixed = [record(index, index * 0.1, ttft=0.1 if index % 4 else 3.0) for index in range(300)]
    measured = measure(mixed, Objectives(parse_bounds("ttft=1s")), 0.0)
    assert measured.share_meeting_slo == pytest.approx(0.75)
    assert measured.rates.goodput == pytest.approx(0.75 * measured.rates.offered)


# ---- the verdict


def judged(records: Sequence[Record], *, loop_lags: Sequence[float] = (), gave_up: str | None = None):  # type: ignore[no-untyped-def]  # Verdict
    return judge(records, measure(records, None, 0.0), loop_lags, gave_up, open_loop=True)


def test_a_steady_run_is_valid() -> None:
    verdict = judged(STEADY, loop_lags=[0.0005] * 100)
    assert (verdict.title, verdict.faults, verdict.cautions) == ("valid", (), ())
    assert verdict.dispatch_lag_p99 == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("gap", "lag", "valid"), [(0.1, 0.0049, True), (0.1, 0.0051, False), (2.0, 0.0199, True), (2.0, 0.021, False)]
)
def test_late_sends_make_a_run_invalid_beyond_5_ms_and_1_percent_of_the_gap(
    gap: float, lag: float, valid: bool
) -> None:
    late = [record(index, index * gap + lag, intended=index * gap, allowed=index * gap) for index in range(50)]
    assert judged(late).valid is valid


@pytest.mark.parametrize(
    ("records", "arguments", "words"),
    [
        ([*STEADY, unsent(300, 30.0)], {}, "1 of 301 requests were never sent"),
        (STEADY, {"gave_up": "the server is gone"}, "the run stopped early: the server is gone"),
        (STEADY, {"loop_lags": [0.05] * 100}, "the client's own loop was 50.0 ms behind"),
        ([failed(i, i * 0.1) for i in range(30)], {}, "no request succeeded"),
        ([*STEADY, failed(300, 30.0, Reason.CLIENT_LIMIT, "no files")], {}, "raise its limit of open files"),
    ],
)
def test_what_makes_a_run_invalid(records: Sequence[Record], arguments: dict[str, object], words: str) -> None:
    verdict = judged(records, **arguments)  # type: ignore[arg-type]  # as declared above
    assert verdict.title == "invalid"
    assert any(words in fault for fault in verdict.faults)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"server_prompt_tokens": 101}, "300 of 300 prompts have another number of tokens for the server than planned"),
        ({"max_tokens": 9}, "300 of 300 answers have another length than asked for (median 4 tokens for 9)"),
        ({"cached_tokens": 50}, "the server had 50.0% of the prompt tokens in its prefix cache"),
        ({"token_counts": TokenCounts.SPREAD}, "in 300 of 300 answers a chunk may hold several tokens"),
        ({"token_counts": TokenCounts.ASSUMED}, "in 300 of 300 answers the server counts no tokens"),
    ],
)
def test_what_a_reader_must_know(changed: dict[str, object], words: str) -> None:
    verdict = judged([replace(each, **changed) for each in STEADY])  # type: ignore[arg-type]  # fields of a record
    assert verdict.title == "valid, with cautions"
    assert any(words in caution for caution in verdict.cautions)


def test_a_few_failures_are_said_and_many_are_explained() -> None:
    assert judged([*STEADY, failed(300, 30.0)]).cautions == ("1 of 301 requests failed (0.3%) and are in no latency",)
    many = [failed(300 + index, 30.0 + index * 0.1) for index in range(30)]
    assert "had an emptier server" in judged([*STEADY, *many]).cautions[0]


def test_reusing_numpy_arrays_changes_no_record() -> None:
    one = record(0, 0.0, chunk_tokens=(2, 1, 1, 1))
    assert np.array_equal(one.token_gaps(), one.token_gaps())
