"""What a run looks like from outside while it goes, and when there is time to look.

Painting a terminal takes a few milliseconds in the same thread that sends requests on time. So it waits for a gap
between two sends that is long enough, though not for ever.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evenflow.replay.request import ObservedRequest

_PERIOD_SECONDS = 0.5
_NEEDED_SECONDS = 0.008
_POSTPONE_SECONDS = 0.01
_MOST_POSTPONED = 50


@dataclass(slots=True)
class Progress:
    """`num_tokens` are those of answers that are complete. `next_due` is None when nothing more is to be sent."""

    observed: Sequence[ObservedRequest]
    start: float
    next_due: float | None
    num_sent: int = 0
    num_done: int = 0
    num_failed: int = 0
    num_tokens: int = 0

    @property
    def num_in_flight(self) -> int:
        return self.num_sent - self.num_done - self.num_failed


Watcher = Callable[[Progress, float], None]


def nobody_watches(progress: Progress, now: float) -> None:
    pass


async def paint(progress: Progress, watch: Watcher) -> None:
    """At once, and then until cancelled."""
    loop = asyncio.get_running_loop()
    watch(progress, loop.time())
    while True:
        await asyncio.sleep(_PERIOD_SECONDS)
        for _ in range(_MOST_POSTPONED):
            if progress.next_due is None or progress.next_due - loop.time() > _NEEDED_SECONDS:
                break
            await asyncio.sleep(_POSTPONE_SECONDS)
        watch(progress, loop.time())
