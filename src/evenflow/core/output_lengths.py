"""How long answers are, learned from those that ended: one forgetful histogram per service class.

Buckets grow by a quarter, so a quantile is right to within that; old answers fade, so a change of traffic is followed.
"""

from bisect import bisect_left
from itertools import accumulate
from math import ceil

_EDGES = tuple(sorted({ceil(1.25**exponent) for exponent in range(64)}))  # up to about a million tokens
_MEMORY = 0.998  # an answer counts half after some 350 others
_LEAST_SEEN = 8.0


class OutputLengths:
    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[str, list[float]] = {}

    def observe(self, service_class: str, num_output_tokens: int) -> None:
        """An answer ended by itself, with so many tokens."""
        counts = self._counts.setdefault(service_class, [0.0] * len(_EDGES))
        counts[:] = [count * _MEMORY for count in counts]
        counts[min(bisect_left(_EDGES, num_output_tokens), len(_EDGES) - 1)] += 1.0

    def quantile(self, service_class: str, share: float, *, longer_than: int) -> int | None:
        """A length that `share` of the answers that are longer than so many tokens do not exceed; None if unknown."""
        counts = self._counts.get(service_class)
        if counts is None:
            return None
        first = bisect_left(_EDGES, longer_than + 1)
        total = sum(counts[first:])
        if total < _LEAST_SEEN:
            return None
        enough = share * total * (1 - 1e-9)  # sums of floats
        reached = zip(_EDGES[first:], accumulate(counts[first:]), strict=True)
        return next(edge for edge, seen in reached if seen >= enough)
