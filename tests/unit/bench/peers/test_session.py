"""Whole sessions of processes are held still, let go and ended, wherever their members are."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from evenflow.bench.peers.contenders import Launch
from evenflow.bench.peers.pinning import pin_busiest_threads
from evenflow.bench.peers.session import Session, members

# A server whose worker is in a process group of its own; both spin. It says the worker's number.
PARENT = """
import signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "while True: pass"], process_group=0)
if len(sys.argv) > 1:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(child.pid, flush=True)
while True: pass
"""
DEADLINE_SECONDS = 30.0


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    session = start(tmp_path)
    yield session
    session.end()


def start(folder: Path, *arguments: str) -> Session:
    """Both of its processes run."""
    launch = Launch((sys.executable, "-c", PARENT, *arguments), dict(os.environ))
    session = Session(launch, folder / "log", talking=True)
    _, said = session.pipes
    child = int(said.readline())
    assert set(members(session.pid)) == {session.pid, child}
    return session


def ticks(process: int) -> int:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def states(session: Session) -> set[str]:
    return {Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] for process in members(session.pid)}


def wait_until_stopped(session: Session) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while states(session) != {"T"}:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_paused_session_takes_no_processor_time(session: Session) -> None:
    session.pause()
    wait_until_stopped(session)
    before = [ticks(process) for process in members(session.pid)]
    time.sleep(0.1)  # the clock tick is a hundredth of a second
    assert [ticks(process) for process in members(session.pid)] == before


def test_a_resumed_session_goes_on(session: Session) -> None:
    session.pause()
    wait_until_stopped(session)
    before = {process: ticks(process) for process in members(session.pid)}
    session.resume()
    deadline = time.monotonic() + DEADLINE_SECONDS
    while any(ticks(process) == before[process] for process in members(session.pid)):
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_paused_session_ends_whole(session: Session) -> None:
    session.pause()
    session.end()
    assert list(members(session.pid)) == []
    assert session.exit_status is not None
    session.end()


def test_one_that_ignores_being_asked_is_killed(tmp_path: Path) -> None:
    session = start(tmp_path, "ignore")
    session.end(patience_seconds=0.1)
    assert list(members(session.pid)) == []


def test_the_last_words_are_the_end_of_the_log(tmp_path: Path) -> None:
    code = "import sys; sys.stderr.write('noise\\n' * 2000 + 'one\\ntwo\\nthree\\n')"
    session = Session(Launch((sys.executable, "-c", code), dict(os.environ)), tmp_path / "log", talking=False)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while session.exit_status is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    session.end()
    assert session.last_words() == "one / two / three"


def test_the_busiest_thread_gets_a_core_of_its_own(session: Session) -> None:
    cpu = max(os.sched_getaffinity(0))
    pin_busiest_threads(session.pid, [cpu])
    assert sorted(len(os.sched_getaffinity(process)) == 1 for process in members(session.pid))[-1]
    pin_busiest_threads(2**22 + 1, [cpu])  # nobody there: nothing happens
