"""Sketches over the last minute, the last five, and since the start.

Time is cut into slices of ten seconds, each with sketches of its own; a window is the merge of its last slices, so it
moves by ten seconds at a time and is never older than it says. What has left the longest window is kept in the total.

    |  slice  |  slice  |  slice  |  slice  |  slice  |  slice  |
                                            now ------------^
    `1m` is the slice under way and the five before it
"""

from collections import deque
from collections.abc import Mapping
from typing import Final

from evenflow.observe.sketch import Sketch

SLICE_SECONDS: Final = 10.0
WINDOWS: Final[Mapping[str, int | None]] = {"1m": 6, "5m": 30, "start": None}
_MOST_SLICES = 30


class WindowedSketches:
    """Named sketches of one group. Times may not fall behind the slice under way by more than the longest window."""

    __slots__ = ("_slices", "_total")

    def __init__(self) -> None:
        self._slices: deque[tuple[int, dict[str, Sketch]]] = deque(maxlen=_MOST_SLICES)
        self._total: dict[str, Sketch] = {}

    def _at(self, time: float) -> tuple[dict[str, Sketch], dict[str, Sketch]]:
        number = int(time // SLICE_SECONDS)
        if not self._slices or self._slices[-1][0] < number:
            self._slices.append((number, {}))
        return self._slices[-1][1], self._total

    def add(self, name: str, value: float, time: float) -> None:
        for sketches in self._at(time):
            sketches.setdefault(name, Sketch()).add(value)

    def add_many(self, name: str, values: list[float], time: float) -> None:
        fresh = Sketch()
        fresh.add_many(values)
        for sketches in self._at(time):
            sketches.setdefault(name, Sketch()).merge(fresh)

    def window(self, window: str, now: float) -> dict[str, Sketch]:
        """One sketch per name that was seen in the window; KeyError for a window that is not in WINDOWS."""
        num_slices = WINDOWS[window]
        if num_slices is None:
            return self._total
        oldest = int(now // SLICE_SECONDS) - num_slices + 1
        merged: dict[str, Sketch] = {}
        for number, sketches in self._slices:
            if number >= oldest:
                for name, sketch in sketches.items():
                    merged.setdefault(name, Sketch()).merge(sketch)
        return merged
