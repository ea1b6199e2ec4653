"""The processes of one contender: started in a session of their own, held still while others run, ended whole.

    start ... pause | resume ... measured ... pause | resume ... | end
                         others run meanwhile

A paused session costs memory and no processor time, so that contenders can take turns without starting anew each time,
and never two of them run at once. A session, not a process group, because a server may put its workers into groups of
their own. Linux: the members of a session are read from /proc.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from evenflow.bench.peers.contenders import Launch

PATIENCE_SECONDS = 10.0
_LAST_WORDS_BYTES = 2000
_POLL_SECONDS = 0.02


class Session:
    """`log` gets what the processes say. With `talking`, stdin and stdout are pipes of ours."""

    def __init__(self, launch: Launch, log: Path, *, talking: bool) -> None:
        self._log = log
        with log.open("wb") as said:
            self._process = subprocess.Popen(
                launch.command,
                env=dict(launch.environment),
                stdin=subprocess.PIPE if talking else subprocess.DEVNULL,
                stdout=subprocess.PIPE if talking else said,
                stderr=said,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def pipes(self) -> tuple[BinaryIO, BinaryIO]:
        """What it reads, and what it writes."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None, "a session that talks"
        return process.stdin, process.stdout  # type: ignore[return-value] # IO[bytes], which is one

    @property
    def exit_status(self) -> int | None:
        """None as long as the first process lives."""
        return self._process.poll()

    def wait_for_exit(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """Until the first process has ended, and so has said all that it will say; or until patience ends."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_seconds)

    def pause(self) -> None:
        stopped: set[int] = set()
        while new := set(members(self.pid)) - stopped:  # until nobody was born meanwhile
            _signal(new, signal.SIGSTOP)
            stopped |= new

    def resume(self) -> None:
        _signal(set(members(self.pid)), signal.SIGCONT)

    def end(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """May be called again. Whoever is left after SIGTERM and some patience is killed."""
        living = set(members(self.pid))
        _signal(living, signal.SIGTERM)
        _signal(living, signal.SIGCONT)
        until = time.monotonic() + patience_seconds
        while self._lives() and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
        while self._lives():
            _signal(set(members(self.pid)), signal.SIGKILL)
            time.sleep(_POLL_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _lives(self) -> bool:
        return self._process.poll() is None or any(members(self.pid))

    def last_words(self) -> str:
        """The end of what it said, on one line."""
        with self._log.open("rb") as said:
            said.seek(max(0, self._log.stat().st_size - _LAST_WORDS_BYTES))
            lines = [line.strip() for line in said.read().decode(errors="replace").splitlines() if line.strip()]
        return " / ".join(lines[-3:]) or "nothing"


def members(session: int) -> Iterator[int]:
    """The processes of a session that are not dead."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it ended meanwhile
                # pid (name, which may hold anything) state parent group session ...
                state, _, _, its_session, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(its_session) == session and state not in "ZX":
                    yield int(entry.name)


def _signal(processes: set[int], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)
