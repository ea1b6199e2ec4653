"""How fast the waiting queue drains, measured while somebody waits.

Only then does the speed say what the engine can do: with nobody waiting, requests come in as fast as they arrive.
"""

from math import exp

_MEMORY_SECONDS = 10.0
_LEAST_SECONDS = 0.05


class DrainRate:
    """Fading sums of requests and prompt tokens that left the queue for a seat, and of the time that took."""

    __slots__ = ("_last_time", "_requests", "_seconds", "_tokens")

    def __init__(self) -> None:
        self._last_time: float | None = None
        self._requests = 0.0
        self._tokens = 0.0
        self._seconds = 0.0

    def observe(self, now: float, num_requests: int, num_tokens: int, *, backlogged: bool) -> None:
        """A step let so many in. `backlogged`: somebody still waits."""
        last, self._last_time = self._last_time, now if backlogged else None
        if last is None:
            return
        elapsed = now - last
        if elapsed > 0.0:
            fading = exp(-elapsed / _MEMORY_SECONDS)
            self._requests *= fading
            self._tokens *= fading
            self._seconds = self._seconds * fading + elapsed
        self._requests += num_requests
        self._tokens += num_tokens

    def seconds_for(self, num_requests: float, num_tokens: float) -> float | None:
        """How long until so many requests, with so many tokens, have left the queue; None if that is not yet known."""
        if self._seconds < _LEAST_SECONDS or not self._requests or not self._tokens:
            return None
        return self._seconds * max(num_requests / self._requests, num_tokens / self._tokens)
