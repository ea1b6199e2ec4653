"""Percentiles that the sample can carry.

A P99 of 40 observations is the largest one by another name. A percentile is shown only if at least five observations
are expected above it (P50 from 10 on, P95 from 100, P99 from 500); else it is withheld, and the number of observations
says why.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

PERCENTS = (50, 95, 99)
MIN_EXPECTED_ABOVE = 5


def carries(num_observations: int, percent: int) -> bool:
    return num_observations * (100 - percent) >= 100 * MIN_EXPECTED_ABOVE


@dataclass(frozen=True, slots=True)
class Tail:
    """`percentiles` has one entry per PERCENTS; None is withheld. Linear between neighbouring observations."""

    num_observations: int
    percentiles: tuple[float | None, ...]

    @property
    def p50(self) -> float | None:
        return self.percentiles[0]

    @property
    def p95(self) -> float | None:
        return self.percentiles[1]

    @property
    def p99(self) -> float | None:
        return self.percentiles[2]


def tail_of(observations: Sequence[float], counts: Sequence[int] | None = None) -> Tail:
    """`counts` says how often each observation occurred; None is once each."""
    values = np.asarray(observations, dtype=np.float64)
    if counts is not None:
        values = np.repeat(values, np.asarray(counts, dtype=np.int64))
    n = len(values)
    shown = [percent for percent in PERCENTS if carries(n, percent)]
    found = dict(zip(shown, np.percentile(values, shown).tolist(), strict=True)) if shown else {}
    return Tail(n, tuple(found.get(percent) for percent in PERCENTS))
