"""What copying a KV block to or from host memory takes, by the copies that the engine has made.

    seconds per block = S / B        S = fading * S + seconds, B = fading * B + blocks, at every step that copies

The last twenty such steps or so count. What is old is worth nothing: somebody who acts on it, and so copies nothing,
would believe one slow copy for ever. Each time that this happens the answer ages, until it is none.
"""

_FADING = 0.95
_MOST_REFUSALS = 32


class CopyTime:
    __slots__ = ("_blocks", "_num_refusals", "_seconds")

    def __init__(self) -> None:
        self._seconds = 0.0
        self._blocks = 0.0
        self._num_refusals = 0

    def observe(self, num_blocks: int, seconds: float) -> None:
        """A step copied so many blocks."""
        if num_blocks:
            self._seconds = _FADING * self._seconds + seconds
            self._blocks = _FADING * self._blocks + num_blocks
            self._num_refusals = 0

    def seconds(self, num_blocks: int) -> float | None:
        """None if nobody knows, or not any more."""
        if not self._blocks or self._num_refusals >= _MOST_REFUSALS:
            return None
        return self._seconds / self._blocks * num_blocks

    def refused(self) -> None:
        """Something was not copied because of the answer."""
        self._num_refusals += 1
