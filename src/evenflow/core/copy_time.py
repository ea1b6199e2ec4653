"""What copying a KV block to or from host memory takes, by the copies that the engine has made.

    seconds per block = S / B        S = fading * S + seconds, B = fading * B + blocks, at every step that copies

The last twenty such steps or so count. Whoever acts on it, and so copies nothing, would believe one slow copy for ever:
so it is also kept what has been spent to avoid a copy since the last one was made.
"""

_FADING = 0.95


class CopyTime:
    __slots__ = ("_blocks", "_seconds", "spent_instead")

    def __init__(self) -> None:
        self._seconds = 0.0
        self._blocks = 0.0
        self.spent_instead = 0.0

    def observe(self, num_blocks: int, seconds: float) -> None:
        """A step copied so many blocks."""
        if num_blocks:
            self._seconds = _FADING * self._seconds + seconds
            self._blocks = _FADING * self._blocks + num_blocks
            self.spent_instead = 0.0

    def seconds(self, num_blocks: int) -> float | None:
        """None if nobody knows."""
        return self._seconds / self._blocks * num_blocks if self._blocks else None

    def avoided(self, seconds: float) -> None:
        """So much is spent on something else, because of the answer."""
        self.spent_instead += seconds
