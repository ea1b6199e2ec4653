"""How much of the machine others took while somebody was measured: what cannot be prevented can be told.

    all busy time of all cores  -  that of the contender's session  -  our own (the client)  =  others'

as a share of what the cores had to give. Linux: /proc, in ticks of a hundredth of a second, so short turns are coarse.
"""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from evenflow.bench.peers.session import members

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Reading:
    """Seconds, of the clock and of processors."""

    clock: float
    machine: float
    measured: float


def read(session: int) -> Reading:
    own = os.times()
    measured = own.user + own.system + sum(map(_process_seconds, members(session)))
    return Reading(time.monotonic(), machine_seconds(Path("/proc/stat").read_text()), measured)


def share_of_others(before: Reading, after: Reading, num_cores: int) -> float:
    """0 is a quiet machine. Processes of the session that have ended meanwhile count as others unless waited for."""
    room = (after.clock - before.clock) * num_cores
    others = (after.machine - before.machine) - (after.measured - before.measured)
    return max(0.0, others / room) if room > 0.0 else 0.0


def machine_seconds(stat: str) -> float:
    """From the text of /proc/stat: user, nice, system, irq and softirq time of all cores."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, stat.splitlines()[0].split()[1:])
    return (user + nice + system + irq + softirq) / _TICKS_PER_SECOND


def _process_seconds(process: int) -> float:
    """With the children that it has waited for."""
    with suppress(OSError):  # it ended meanwhile
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / _TICKS_PER_SECOND
    return 0.0
