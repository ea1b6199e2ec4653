"""One core for each computing thread of a server, for engines that pin the threads of a library but not of a server.

The computing threads are the busiest ones of the busiest process; that is known once the server has done some work.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from evenflow.bench.peers.session import members


def pin_busiest_threads(session: int, cpus: Sequence[int]) -> None:
    busiest = max(members(session), key=lambda process: _ticks(Path(f"/proc/{process}/stat")), default=None)
    if busiest is None:
        return
    threads = sorted(Path(f"/proc/{busiest}/task").iterdir(), key=lambda thread: -_ticks(thread / "stat"))
    for thread, cpu in zip(threads, cpus, strict=False):
        with suppress(OSError):  # it ended meanwhile
            os.sched_setaffinity(int(thread.name), {cpu})


def _ticks(stat: Path) -> int:
    """Processor time in user and kernel mode so far."""
    try:
        fields = stat.read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])
