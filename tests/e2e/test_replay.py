"""`evenflow replay` and `evenflow compare` as a user runs them, on real sockets."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from evenflow.bench.replay import measure
from evenflow.cli.main import main
from evenflow.replay.noop_server import Answer, Asked, NoopServer, Script, at_once, serve
from evenflow.replay.result import read_result

AZURE = Path(__file__).parents[1] / "data" / "traces" / "azure_code_excerpt.csv"
MOONCAKE = Path(__file__).parents[1] / "data" / "traces" / "mooncake_conversation_excerpt.jsonl"
FAST = ("--rate-scale", "200")


@contextmanager
def noop_server(script: Script = at_once) -> Iterator[tuple[NoopServer, str]]:
    """In a thread of its own, with a loop of its own."""
    server = NoopServer(script)
    loop = asyncio.new_event_loop()
    ports: list[int] = []
    ready = threading.Event()

    def announce(port: int) -> None:
        ports.append(port)
        ready.set()

    serving: list[asyncio.Task[None]] = []

    def run() -> None:
        asyncio.set_event_loop(loop)
        serving.append(loop.create_task(serve(server, announce)))
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(serving[0])
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(30.0)
    try:
        yield server, f"http://127.0.0.1:{ports[0]}"
    finally:
        loop.call_soon_threadsafe(serving[0].cancel)
        thread.join()


def status_of(*arguments: str) -> int | str | None:
    try:
        main(list(arguments))
    except SystemExit as ended:
        return ended.code
    return 0


def replay(url: str, out: Path, *more: str, trace: Path = AZURE) -> int | str | None:
    return status_of("replay", "--trace", str(trace), "--url", url, "--out", str(out), *more)


def test_a_trace_is_replayed_measured_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with noop_server(lambda asked: Answer(gap_seconds=0.0005)) as (server, url):
        # A busy machine may send late; the verdict says so then, and the status is 1.
        statuses = {replay(url, tmp_path / name, *FAST, "--slo", "ttft=10s") for name in ("a", "b")}
    assert statuses <= {0, 1}
    result = read_result(tmp_path / "a.json")
    assert all(record.ok for record in result.records)
    said = capsys.readouterr()
    assert "azure, 60 rows = 60 kept, times as date and time" in said.err
    assert "60 of 60 requests went well" in said.out
    assert "meet ttft=10s" in said.out
    planned = [record for record in server.asked if not record.request_id.startswith("preflight")]
    assert len(planned) == 120
    first = result.records[0]
    assert (first.num_prompt_tokens, first.num_output_tokens, first.server_prompt_tokens) == (4808, 10, 4808)
    assert result.target["model"] == "noop"
    assert server.num_repeated_prompts == 0
    assert "<svg" in (tmp_path / "a.html").read_text()
    files = [str(tmp_path / f"{name}.json") for name in ("a", "b")]
    assert status_of("compare", *files, "--out", str(tmp_path / "c.html")) == 0
    assert "b against a: " in capsys.readouterr().out
    assert "b against a: " in (tmp_path / "c.html").read_text()


def test_prefix_identity_goes_over_the_wire(tmp_path: Path) -> None:
    with noop_server() as (server, url):
        replay(url, tmp_path / "r", *FAST, "--length-scale", "0.1", trace=MOONCAKE)
    prompts = [asked.body["prompt"] for asked in server.asked if asked.request_id.startswith("replay")]
    assert len(prompts) == 40
    # Every row of this trace begins with block 0, of 512 tokens; a tenth of it is 51.
    heads = {tuple(prompt[:51]) for prompt in prompts if isinstance(prompt, list)}
    assert len(heads) == 1
    assert len({tuple(prompt[:60]) for prompt in prompts if isinstance(prompt, list)}) > 30


def test_users_take_turns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with noop_server(lambda asked: Answer(first_token_seconds=0.002)) as (server, url):
        replay(url, tmp_path / "r", "--users", "4", "--compress")
    assert server.most_connections <= 4
    assert len(read_result(tmp_path / "r.json.gz").records) == 60
    assert "closed loop, 4 users" in capsys.readouterr().err


def test_several_rates_give_one_line_each_and_one_that_fails_does_not_end_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    probes: list[str] = []

    def second_probe_fails(asked: Asked) -> Answer:
        if asked.request_id.startswith("preflight"):
            probes.append(asked.request_id)
            return Answer(status=503 if len(probes) == 2 else 200)
        return Answer()

    with noop_server(second_probe_fails) as (_, url):
        assert replay(url, tmp_path / "r", "--limit", "10", "--rate-scales", "400,500,600") == 1
    said = capsys.readouterr()
    assert "r-x500: noop does not answer a request of 4 tokens: HTTP 503" in " ".join(said.err.split())
    assert "failed: noop does not answer" in " ".join(said.out.split())
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["r-x400.json", "r-x600.json"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--columns", "tenant=who"), "has no column who"),
        (("--window", "5h..6h"), "no request arrives between"),
        (("--users", "2", "--max-concurrency", "3"), "max_concurrency is for an open loop"),
        (("--duration", "5s"), "duration and think are for a closed loop"),
        (("--body", "[]"), "body must be a JSON object"),
        (("--slo", "fast"), "an SLO is like ttft=1s"),
        (("--warm-up", "long"), "warm_up must be a time"),
        (("--rate-scales", "1,1"), "rate_scales must be different"),
        (("--model", "other"), "does not serve 'other'; it serves noop"),
        (("--tokenizer", "/nowhere"), "/nowhere"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    arguments: tuple[str, ...], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with noop_server() as (server, url):
        assert replay(url, tmp_path / "r", *arguments) == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert not [asked for asked in server.asked if asked.request_id.startswith("replay")]
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert replay(f"http://127.0.0.1:{port}", tmp_path / "r") == 2
    assert f"cannot reach http://127.0.0.1:{port}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("script", [lambda asked: Answer(field=""), lambda asked: Answer(num_tokens=0)])
def test_a_server_that_streams_no_tokens(
    script: Callable[[Asked], Answer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with noop_server(script) as (_, url):
        assert replay(url, tmp_path / "r") == 2
    assert "the server streamed no token" in capsys.readouterr().err


def test_a_result_that_would_have_nowhere_to_go_is_refused_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with noop_server() as (server, url):
        assert replay(url, tmp_path / "no" / "r") == 2
    assert "out must be in a folder that exists" in capsys.readouterr().err
    assert server.asked == []


def test_comparing_what_is_no_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.json").write_text("{}")
    assert status_of("compare", str(tmp_path / "x.json"), str(tmp_path / "x.json")) == 2
    assert "is not the result of a replay" in capsys.readouterr().err
    assert status_of("compare", str(tmp_path / "x.json")) == 2


def test_the_bench_measures_lag_and_rate(capsys: pytest.CaptureFixture[str]) -> None:
    cost = measure(rate=200.0, seconds=0.5, users=4)
    assert (cost.requests, cost.failed) == (100, 0)
    assert cost.most_requests_per_second > 0
    assert cost.lag_p99_ms is None, "100 requests do not carry it"
    assert status_of("bench", "replay", "--rate", "100", "--seconds", "0.2", "--json") == 0
    assert json.loads(capsys.readouterr().out)["requests"] == 20
