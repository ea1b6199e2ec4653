"""What a group counted over the last minute, the last five, and since the start.

Time is cut into slices of ten seconds, each with a tally of its own; a window is the merge of its last slices, so it
moves by ten seconds at a time and is never older than it says. What has left the longest window is kept in the total.

    |  slice  |  slice  |  slice  |  slice  |  slice  |  slice  |
                                            now ------------^
    `1m` is the slice under way and the five before it
"""

from collections import deque
from collections.abc import Mapping
from typing import Final

from evenflow.observe.tally import Tally, merged

SLICE_SECONDS: Final = 10.0
WINDOWS: Final[Mapping[str, int | None]] = {"1m": 6, "5m": 30, "start": None}
_MOST_SLICES = 30


def slice_of(time: float) -> int:
    """The number of the slice that an instant falls into."""
    return int(time // SLICE_SECONDS)


class WindowedTally:
    """One group's. Times may not fall behind the slice under way by more than the longest window."""

    __slots__ = ("_slices", "_total")

    def __init__(self) -> None:
        self._slices: deque[tuple[int, Tally]] = deque(maxlen=_MOST_SLICES)
        self._total = Tally()

    def at(self, number: int) -> tuple[Tally, Tally]:
        """Both that count what falls into this slice, which has begun: the slice's own and the total."""
        if not self._slices or self._slices[-1][0] < number:
            self._slices.append((number, Tally()))
        return self._slices[-1][1], self._total

    def window(self, window: str, now: float) -> Tally:
        """To look at; KeyError for a window that is not in WINDOWS."""
        num_slices = WINDOWS[window]
        if num_slices is None:
            return self._total
        oldest = slice_of(now) - num_slices + 1
        return merged([tally for number, tally in self._slices if number >= oldest])
