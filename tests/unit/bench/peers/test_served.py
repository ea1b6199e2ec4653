"""The bench against a real server process."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evenflow.bench.peers.contenders import Launch
from evenflow.bench.peers.engines import Limits
from evenflow.bench.peers.messages import ContenderFailed
from evenflow.bench.peers.served import ServedEngine
from evenflow.workload.peer_format import PeerRequest

SCRIPT = Path(__file__).with_name("scripted_server.py")
REQUESTS = [PeerRequest(0, "", (1, 2, 3), 4), PeerRequest(1, "", (5,), 7)]

Start = Callable[[str], ServedEngine]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    engines = []

    def start(manner: str) -> ServedEngine:
        launch = Launch((sys.executable, str(SCRIPT), "{port}", manner), dict(os.environ))
        engine = ServedEngine(launch, "/ready", tmp_path, Limits(30.0, 30.0))
        engines.append(engine)
        return engine

    yield start
    for engine in engines:
        engine.end()


def test_a_batch_is_timed_and_counted(start: Start) -> None:
    batch = start("right").batch(REQUESTS)
    assert (batch.prompt_tokens, batch.output_tokens) == (4, 11)
    assert batch.wall_seconds > 0.0


def test_a_single_stream_has_a_first_token_and_gaps(start: Start) -> None:
    single = start("right").single(REQUESTS[1])
    assert single.ttft_ms > single.ms_per_token >= 0.0  # all tokens may come with one read


def test_requests_come_at_their_times(start: Start) -> None:
    first, second = start("right").load(REQUESTS, [0.0, 0.25])
    assert first.sent is not None
    assert second.sent is not None
    assert second.sent - first.sent >= 0.2
    assert [request.num_output_tokens for request in (first, second)] == [4, 7]


@pytest.mark.parametrize(
    ("manner", "reason"),
    [
        ("short", "9 output tokens instead of 11"),
        ("refuses", "HTTP 400: too long"),
        ("empty", "streamed no token"),
    ],
)
def test_an_answer_that_is_not_what_was_asked_for_is_a_failure(start: Start, manner: str, reason: str) -> None:
    engine = start(manner)
    with pytest.raises(ContenderFailed, match=reason):
        engine.batch(REQUESTS)


def test_a_server_that_does_not_start_says_why(start: Start) -> None:
    with pytest.raises(ContenderFailed, match="the server ended with status 1; it said: cannot load the model"):
        start("dies")


def test_a_server_that_is_never_ready_is_not_waited_for(tmp_path: Path) -> None:
    launch = Launch((sys.executable, str(SCRIPT), "{port}", "right"), dict(os.environ))
    with pytest.raises(ContenderFailed, match="was not ready in time"):
        ServedEngine(launch, "/other", tmp_path, Limits(start_seconds=0.3))
