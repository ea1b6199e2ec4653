"""The bench's end of the pipe, against a real driver process."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evenflow.bench.peers import peer_driver
from evenflow.bench.peers.contenders import Launch
from evenflow.bench.peers.engines import Limits
from evenflow.bench.peers.messages import ContenderFailed
from evenflow.bench.peers.piped import PipedEngine
from evenflow.bench.peers.session import members
from evenflow.workload.peer_format import PeerRequest

SCRIPT = Path(__file__).with_name("scripted_driver.py")
REQUESTS = [PeerRequest(0, "", (1, 2, 3), 4), PeerRequest(1, "", (5,), 7)]
LONG_PROMPT = PeerRequest(2, "", tuple(range(50_000)), 2)

Start = Callable[[str], PipedEngine]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    engines = []

    def start(manner: str) -> PipedEngine:
        folder = Path(peer_driver.__file__).parent
        launch = Launch((sys.executable, str(SCRIPT), str(folder), manner), dict(os.environ))
        engine = PipedEngine(launch, tmp_path, Limits(start_seconds=30.0, run_seconds=30.0))
        engines.append(engine)
        return engine

    yield start
    for engine in engines:
        engine.end()


def test_a_batch_is_timed_and_counted(start: Start) -> None:
    engine = start("right")
    batch = engine.batch(REQUESTS)
    assert (batch.prompt_tokens, batch.output_tokens, batch.steps) == (4, 11, ())
    assert batch.wall_seconds > 0.0
    assert engine.version == "scripted 1.0"
    assert engine.start_seconds > batch.wall_seconds


def test_a_job_may_be_larger_than_a_pipe(start: Start) -> None:
    assert start("right").batch([LONG_PROMPT]).prompt_tokens == 50_000


def test_one_engine_does_many_jobs(start: Start) -> None:
    engine = start("right")
    assert [engine.batch(REQUESTS[:count]).output_tokens for count in (1, 2, 1)] == [4, 11, 4]
    assert engine.single(REQUESTS[1]).ttft_ms > 0.0


@pytest.mark.parametrize(
    ("manner", "reason"),
    [
        ("short", r"9 output tokens instead of 11; 2 of 2 requests differ"),
        ("raises", r"RuntimeError: no kernel for this"),
        ("dies", r"its driver ended; it said: .*out of something"),
    ],
)
def test_what_goes_wrong_is_said(start: Start, manner: str, reason: str) -> None:
    engine = start(manner)
    with pytest.raises(ContenderFailed, match=reason):
        engine.batch(REQUESTS)


def test_an_error_of_one_job_leaves_the_driver_alive(start: Start) -> None:
    engine = start("raises")
    for _ in range(2):
        with pytest.raises(ContenderFailed, match="no kernel"):
            engine.batch(REQUESTS)


@pytest.mark.parametrize(("manner", "reason"), [("never-ready", "no such engine"), ("babbles", "b'hello")])
def test_a_start_that_fails_says_why(start: Start, manner: str, reason: str) -> None:
    with pytest.raises(ContenderFailed, match=reason):
        start(manner)


def test_an_answer_that_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    folder = Path(peer_driver.__file__).parent
    launch = Launch((sys.executable, str(SCRIPT), str(folder), "silent"), dict(os.environ))
    engine = PipedEngine(launch, tmp_path, Limits(start_seconds=30.0, run_seconds=0.2))
    try:
        with pytest.raises(ContenderFailed, match=r"no answer within 0 s"):
            engine.batch(REQUESTS)
    finally:
        engine.end()


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ContenderFailed, match="no-such-python cannot be started: No such file"):
        PipedEngine(Launch(("no-such-python",), {}), tmp_path, Limits())


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    folder = Path(peer_driver.__file__).parent
    launch = Launch((sys.executable, str(SCRIPT), str(folder), "right"), dict(os.environ))
    engine = PipedEngine(launch, tmp_path, Limits())
    session = engine.session
    assert list(members(session)) == [session]
    engine.pause()
    engine.end()
    assert list(members(session)) == []
