"""How long simulated steps take: the cost's expectation times the scatter that real steps have around it.

The scatter of the n-th step is drawn from a stream of its own, made a block at a time, so that a step has the same
whether it is taken alone or in a leap, and two simulations of one seed have common random numbers.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from math import inf
from operator import mul

import numpy as np
from numpy.typing import NDArray

from evenflow.core.plan import StepPlan
from evenflow.simulate.cost import HULL_FEATURES, Regime, Spread, StepCost, StepFeatures
from evenflow.simulate.levels import Levels, factors_at

_BLOCK = 4096


class Scatter:
    """The factor of each step, by its number from 0 on and its regime; they are asked for in order of steps."""

    def __init__(self, cost: StepCost, seed: Sequence[int]) -> None:
        self._levels = Levels(np.random.default_rng(np.random.SeedSequence(list(seed))), cost.drift)
        self._spreads = [cost.spread(regime) for regime in Regime]
        self._block = -1
        self._factors: dict[Regime, NDArray[np.float64]] = {}
        self.is_none = not any(spread.sigma for spread in self._spreads)

    def factor(self, step: int, regime: Regime) -> float:
        block, at = divmod(step, _BLOCK)
        if block != self._block:
            self._of(block)
        return self._factors[regime].item(at)

    def factors(self, step: int, regime: Regime, count: int) -> Iterator[float]:
        """Of so many steps from `step` on; only those up to the end of a block, at least one."""
        at = step % _BLOCK
        return map(self._of(step // _BLOCK)[regime].item, range(at, min(at + count, _BLOCK)))

    def _of(self, block: int) -> dict[Regime, NDArray[np.float64]]:
        while self._block < block:
            levels = self._levels.next(_BLOCK)
            self._block += 1
            self._factors = {spread.regime: _factors(spread, levels) for spread in self._spreads}
        assert block == self._block, "steps are asked for in order"
        return self._factors


def _factors(spread: Spread, levels: NDArray[np.float64]) -> NDArray[np.float64]:
    if spread.factors:
        return factors_at(levels, spread.factors)
    sigma = spread.sigma
    factors: NDArray[np.float64] = np.exp(sigma * levels - sigma * sigma / 2.0)
    return factors


class StepTimer:
    """What the simulated executor asks. `step` counts steps, and is what the scatter goes by."""

    def __init__(self, cost: StepCost, seed: Sequence[int]) -> None:
        self._cost = cost
        self._scatter = Scatter(cost, seed)
        self.step = 0
        self.outside_hull: Counter[str] = Counter()
        self.num_outside_hull = 0
        self._has_hull = bool(cost.hull)
        bounds = {name: (low, high) for name, low, high in cost.hull}
        self._inside = [bounds.get(name, (-inf, inf)) for name in HULL_FEATURES]

    def step_seconds(self, plan: StepPlan) -> float:
        features = StepFeatures.of(plan)
        seconds = self._cost.seconds(features)
        if not self._scatter.is_none:
            seconds *= self._scatter.factor(self.step, features.regime)
        self.step += 1
        if self._has_hull and (outside := self._outside(features)):
            self._mark(outside, 1)
        return seconds

    def decode_seconds(self, features: StepFeatures, most: int) -> Iterator[float]:
        """Of up to so many steps of the same streams, none of which is taken yet. Nearly all leaps are of a few steps,
        so they are asked for one by one."""
        seconds = self._cost.decode_seconds(features)
        if self._scatter.is_none:
            return islice(seconds, most)
        return map(mul, self._scatter.factors(self.step, Regime.DECODE, most), seconds)

    def take(self, features: StepFeatures, count: int) -> None:
        """So many of those are taken."""
        self.step += count
        if self._has_hull:
            self._mark_many(features, count)

    def _outside(self, features: StepFeatures) -> list[str]:
        """As `StepCost.outside_hull`, in an eighth of the time."""
        p, d, a, k, r = features
        (n0, n1), (p0, p1), (d0, d1), (a0, a1), (k0, k1), (r0, r1) = self._inside
        if n0 <= p + d <= n1 and p0 <= p <= p1 and d0 <= d <= d1 and a0 <= a <= a1 and k0 <= k <= k1 and r0 <= r <= r1:
            return []
        values = zip(HULL_FEATURES, self._inside, (p + d, p, d, a, k, r), strict=True)
        return [name for name, (low, high), value in values if not low <= value <= high]

    def _mark(self, outside: Sequence[str], count: int) -> None:
        if outside:
            self.num_outside_hull += count
            for name in outside:
                self.outside_hull[name] += count

    def _mark_many(self, features: StepFeatures, count: int) -> None:
        """Only the decodes' context changes, and it grows."""
        _, d, _, k, _ = features
        outside = self._outside(features)
        if self._outside(StepFeatures(0, d, 0, k + (count - 1) * d, d)) == outside:
            self._mark(outside, count)
            return
        for index in range(count):
            self._mark(self._outside(StepFeatures(0, d, 0, k + index * d, d)), 1)
