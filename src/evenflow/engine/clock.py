"""Two clocks for one loop: real time, and time that moves only when told."""

import time


class MonotonicClock:
    """Seconds of the system's monotonic clock, which every process of the machine shares."""

    def now(self) -> float:
        return time.monotonic()


class VirtualClock:
    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        assert seconds >= 0.0
        self._now += seconds

    def advance_to(self, instant: float) -> None:
        """Jump to `instant`; a jump into the past is a jump nowhere."""
        self._now = max(self._now, instant)
