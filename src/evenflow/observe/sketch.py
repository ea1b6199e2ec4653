"""Quantiles of a stream that never ends, in little memory, and mergeable (DDSketch: Masson, Rim, Lee, VLDB 2019).

A value falls into the bucket whose bounds are neighbouring powers of gamma = (1 + a) / (1 - a), and is read back as
the bucket's middle: within a = 1 % of the observation that has the asked rank, wherever in the distribution that is.
Two sketches are merged by adding their counts, so a window of time is the sum of its slices, and nothing is lost by it.

    value    1 us        1 ms        1 s         1000 s
    bucket   0    345    691         1036 ...    1382         at most 1 400 counts for nine decades
"""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, exp, log

import numpy as np
from numpy.typing import NDArray

from evenflow.observe.tails import PERCENTS, Tail, carries

RELATIVE_ERROR = 0.01
SMALLEST = 1e-6  # everything up to this is one bucket: no latency of ours is shorter
_LARGEST = 1e9
_LOG_GAMMA = log((1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR))


def bucket_of(value: float) -> int:
    return max(0, ceil(log(min(max(value, SMALLEST), _LARGEST) / SMALLEST) / _LOG_GAMMA))


def buckets_of(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """The same of each, at a tenth of the cost."""
    found = np.ceil(np.log(values.clip(SMALLEST, _LARGEST) / SMALLEST) / _LOG_GAMMA)
    return found.astype(np.int64)


def count_buckets(buckets: NDArray[np.int64]) -> dict[int, int]:
    """How often each bucket occurs."""
    counts = np.bincount(buckets)
    occupied = counts.nonzero()[0]
    return dict(zip(occupied.tolist(), counts[occupied].tolist(), strict=True))


def _middle(bucket: int) -> float:
    """The value whose relative distance to both bounds of the bucket is the same."""
    if bucket == 0:
        return SMALLEST
    return SMALLEST * exp(bucket * _LOG_GAMMA) * (1 - RELATIVE_ERROR)


class Sketch:
    """Observations of at least 0. `total` is their exact sum, `largest` the exact maximum."""

    __slots__ = ("_counts", "largest", "num_observations", "total")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.num_observations = 0
        self.total = 0.0
        self.largest = 0.0

    @property
    def counts(self) -> Mapping[int, int]:
        return self._counts

    @property
    def mean(self) -> float | None:
        return self.total / self.num_observations if self.num_observations else None

    def add(self, value: float, count: int = 1) -> None:
        self.add_counted({bucket_of(value): count}, (value * count,), value)

    def add_many(self, values: Sequence[float]) -> None:
        """The same as `add` of each, at a tenth of the cost."""
        if len(values):
            array = np.asarray(values, dtype=np.float64)
            self.add_counted(count_buckets(buckets_of(array)), (float(array.sum()),), float(array.max()))

    def add_counted(self, counts: Mapping[int, int], totals: Iterable[float], largest: float) -> None:
        """Observations by bucket. `totals` add up to their sum, and are added one after the other."""
        own = self._counts
        for bucket, count in counts.items():
            own[bucket] = own.get(bucket, 0) + count
        self.num_observations += sum(counts.values())
        for total in totals:
            self.total += total
        self.largest = max(self.largest, largest)

    def merge(self, other: "Sketch") -> None:
        self.add_counted(other._counts, (other.total,), other.largest)

    def quantile(self, fraction: float) -> float | None:
        """The observation of rank fraction x (n - 1), within RELATIVE_ERROR; None of nothing."""
        if not self.num_observations:
            return None
        rank = fraction * (self.num_observations - 1)
        seen = 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen > rank:
                return min(_middle(bucket), self.largest)
        raise AssertionError("counts sum to num_observations")

    def tail(self) -> Tail:
        """The usual percentiles; withheld, like everywhere, where the sample does not carry them."""
        n = self.num_observations
        return Tail(n, tuple(self.quantile(p / 100) if carries(n, p) else None for p in PERCENTS))
