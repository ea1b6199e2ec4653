"""Intervals for the difference of two runs of the same requests, by a paired block bootstrap.

Requests that came one after another shared queues and batches: they are not independent, and resampling them one by one
would call chance a difference. So blocks of neighbours are drawn, as long as neighbours are alike, and the same blocks
from both runs (pairs), so that what is due to the requests themselves cancels out.

    weights     how often each block was drawn, one row per resample
    quantile    of the values of all drawn blocks: cumulative weights over the sorted values, all resamples at once
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

NUM_RESAMPLES = 2000
# Fewer blocks carry no interval.
MIN_BLOCKS = 8
_MAX_BLOCKS = 400
_MAX_VALUES = 4000

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """`low` and `high` are None if the sample is too small for an interval."""

    estimate: float
    low: float | None
    high: float | None

    @property
    def excludes_zero(self) -> bool:
        return self.low is not None and self.high is not None and (self.low > 0.0 or self.high < 0.0)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Which block each request is in, requests in order of arrival."""

    of_request: NDArray[np.int64]
    num: int

    @property
    def enough(self) -> bool:
        return self.num >= MIN_BLOCKS

    def draws(self, seed: int, num_resamples: int = NUM_RESAMPLES) -> Floats:
        rng = np.random.default_rng(seed)
        return rng.multinomial(self.num, np.full(self.num, 1.0 / self.num), size=num_resamples).astype(np.float64)


def blocks_of(differences: Sequence[Floats]) -> Blocks:
    """As long as it takes for the differences of neighbours to be no longer alike, in any of several respects; at least
    the cube root of n."""
    n = len(differences[0])
    length = max(*map(_correlation_length, differences), round(n ** (1 / 3)), -(-n // _MAX_BLOCKS), 1)
    # Long memory would leave no blocks to draw; the interval is then a lower bound of the truth.
    length = min(length, max(1, n // (2 * MIN_BLOCKS)))
    return Blocks(np.arange(n) // length, -(-n // length))


def _correlation_length(values: Floats) -> int:
    """Twice the lag at which the autocorrelation is no longer told from none."""
    n = len(values)
    # Ranks: one huge outlier must not hide what the others have in common.
    ranks = np.argsort(np.argsort(values)).astype(np.float64)
    ranks -= ranks.mean()
    power = float(ranks @ ranks)
    if power == 0.0:
        return 1
    for lag in range(1, n // 4):
        if float(ranks[lag:] @ ranks[:-lag]) / power < 2.0 / np.sqrt(n):
            return 2 * lag
    return max(1, n // 4)


@dataclass(frozen=True, slots=True)
class Sample:
    """One run's values, each with the block of its request; `weights` says how often each was seen, once if None."""

    values: Floats
    blocks: NDArray[np.int64]
    weights: Floats | None = None


def resampled_mean(sample: Sample, draws: Floats) -> Floats:
    num_blocks = draws.shape[1]
    weighted = sample.values if sample.weights is None else sample.values * sample.weights
    sums = np.bincount(sample.blocks, weights=weighted, minlength=num_blocks)
    counts = np.bincount(sample.blocks, weights=sample.weights, minlength=num_blocks).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((draws @ sums) / (draws @ counts))


def resampled_quantile(sample: Sample, draws: Floats, percent: float) -> Floats:
    """Nearest-rank, on at most _MAX_VALUES distinct levels."""
    levels, ranks = np.unique(sample.values, return_inverse=True)
    if len(levels) > _MAX_VALUES:
        # What np.quantile calls "higher"; it partitions for thousands of ranks where one sort (a thirtieth) will do.
        places = np.ceil(np.linspace(0.0, 1.0, _MAX_VALUES) * (len(sample.values) - 1)).astype(np.int64)
        levels = np.unique(np.sort(sample.values)[places])
        ranks = np.searchsorted(levels, sample.values)
    counts = np.zeros((draws.shape[1], len(levels)))
    np.add.at(counts, (sample.blocks, ranks), 1.0 if sample.weights is None else sample.weights)
    below = np.cumsum(counts, axis=1).T.copy()  # by level, then by block
    needed = (draws @ below[-1]) * (percent / 100.0)
    low, high = np.zeros(len(draws), dtype=np.int64), np.full(len(draws), len(levels) - 1)
    # Bisection for all resamples at once: the lowest level that has enough weight at or below it.
    while (low < high).any():
        middle = (low + high) // 2
        enough = np.einsum("rb,rb->r", draws, below[middle]) >= needed
        high = np.where(enough, middle, high)
        low = np.where(enough, low, np.minimum(middle + 1, high))
    return np.asarray(levels[low])


Statistic = Callable[[Sample, Floats], Floats]


def value_of(sample: Sample, statistic: Statistic, blocks: Blocks) -> float:
    """As observed: every block once."""
    return float(statistic(sample, np.ones((1, blocks.num)))[0])


def difference(
    base: Sample, other: Sample, statistic: Statistic, blocks: Blocks, draws: Floats, level: float
) -> Interval:
    """Of the statistic, other minus base. `level` is the interval's, such as 0.95."""
    estimate = value_of(other, statistic, blocks) - value_of(base, statistic, blocks)
    if not blocks.enough:
        return Interval(estimate, None, None)
    found = statistic(other, draws) - statistic(base, draws)
    found = found[np.isfinite(found)]
    low, high = np.quantile(found, ((1 - level) / 2, (1 + level) / 2)).tolist()
    wider = _student_over_normal(level, blocks.num - 1)
    middle = float(np.median(found))
    return Interval(estimate, middle + (low - middle) * wider, middle + (high - middle) * wider)


def _student_over_normal(level: float, degrees: int) -> float:
    """Percentiles of few blocks are too narrow, about as the normal distribution is for a small sample's mean: by the
    ratio of Student's quantile to the normal one (its expansion in 1/degrees; 1.15 for 18 blocks at 99.7 %)."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    second = (5 * z**4 + 16 * z**2 + 3) / 96
    return 1.0 + (z * z + 1) / (4 * degrees) + second / degrees**2
