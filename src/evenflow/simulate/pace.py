"""How fast the machine was while a live run had it, over time: what no cost can know, told apart from what one should.

    ratio     measured / predicted seconds of each live step in which only streams go on
    pace      piecewise constant over windows of some seconds: the median ratio of the window's steps, times one factor
              for the whole run by which the total time of these steps comes out as it was: a simulation draws scatter
              of mean 1 around the pace, and a median is not the mean (stalls are drawn in, as in a fit)
    between   windows with too few such steps take the mean of their neighbours'; there is none across runs

Why of these steps alone: what the cost gets wrong about chunks of prompts must not pass for the machine's pace. A step
that only feeds streams is the plainest there is, and comes in every window. What a cost gets wrong about *them* is in
the pace and is excused: wholly where it is the same all along, partly where it goes with what a window's batches were.
So what is left at the live pace is no drift of the machine; what has gone need not all have been.

A cost's scatter has slow spells in it (levels.py). Those that outlast a window are the same thing: where a simulation
is given the live pace their variance is taken off, as far as the pace has it, or it would be there twice. Of spells
that fade within n steps (an autoregression), the mean of a window of m steps has this part of the variance:

    2 (n/m) (1 - (n/m) (1 - exp(-m/n)))
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import expm1, sqrt

import numpy as np
from numpy.typing import NDArray

from evenflow.core.events import Event
from evenflow.simulate.cost import Regime, StepCost
from evenflow.simulate.fit import tamed_logarithms
from evenflow.simulate.levels import narrowed
from evenflow.simulate.samples import timed_samples_of

WINDOW_SECONDS = 2.0
LEAST_STEPS = 10
"""Of a window, for its median to be believed."""

_Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StreamSteps:
    """Of each step of a run in which only streams went on: when it began, by the log's clock, and its seconds."""

    start_times: _Array
    measured: _Array
    predicted: _Array

    @classmethod
    def of(cls, events: Iterable[Event], cost: StepCost) -> "StreamSteps":
        rows = [
            (start, sample.seconds, cost.seconds(sample.features))
            for start, sample in timed_samples_of(events)
            if not sample.features.prefill_tokens
        ]
        return cls(*np.array(rows, dtype=np.float64).reshape(-1, 3).T)


@dataclass(frozen=True, slots=True)
class Pace:
    """Of one run; above 1 the machine was slower than the cost says.

    `values[i]` is the pace from `starts[i]` on, in seconds from the run's first arrival, up to the next of the starts;
    before the first of them it is the first, after the last the last. `windows` are those that had steps enough; the
    seconds are of the `num_steps` in which only streams went on, at this pace and by the cost as it is.
    """

    starts: tuple[float, ...]
    values: tuple[float, ...]
    windows: tuple[float, ...]
    paced_seconds: float
    cost_seconds: float
    num_steps: int

    def __call__(self, now: float) -> float:
        return self.values[max(0, bisect_right(self.starts, now) - 1)]

    @classmethod
    def constant(cls, pace: float) -> "Pace":
        return cls((0.0,), (pace,), (pace,), pace, 1.0, 1)

    @classmethod
    def of(cls, steps: StreamSteps, origin: float) -> "Pace | None":
        """`origin` is when the run's first request came, by the log's clock. None where no window has steps enough."""
        numbers = np.floor((steps.start_times - origin) / WINDOW_SECONDS)
        ratios = steps.measured / steps.predicted
        known = _medians(numbers, ratios)
        if not known:
            return None
        starts, values = _pieces(known)
        inside = np.searchsorted(starts, steps.start_times - origin, side="right") - 1
        expected = steps.predicted * np.array(values)[np.maximum(inside, 0)]
        paced_seconds = float((expected * np.exp(tamed_logarithms(steps.measured / expected))).sum())
        factor = paced_seconds / float(expected.sum())
        return cls(
            tuple(starts),
            tuple([value * factor for value in values]),
            tuple([value * factor for value in known.values()]),
            paced_seconds,
            float(steps.predicted.sum()),
            len(ratios),
        )


def _medians(numbers: _Array, ratios: _Array) -> dict[float, float]:
    """Of the windows with steps enough, by number, in order; a log's times may be absurd, so others have no entry."""
    order = np.argsort(numbers, kind="stable")
    found, begins = np.unique(numbers[order], return_index=True)
    groups = zip(found.tolist(), np.split(ratios[order], begins[1:]), strict=True) if len(found) else ()
    return {number: float(np.median(group)) for number, group in groups if len(group) >= LEAST_STEPS}


def _pieces(known: dict[float, float]) -> tuple[list[float], list[float]]:
    """Where a piece begins, in seconds, and its pace, of windows by number in order."""
    starts, values = list[float](), list[float]()
    previous: float | None = None
    for number, value in known.items():
        if previous is not None and number > previous + 1.0:
            starts.append((previous + 1.0) * WINDOW_SECONDS)
            values.append(sqrt(known[previous]) * sqrt(value))
        starts.append(number * WINDOW_SECONDS)
        values.append(value)
        previous = number
    return starts, values


@dataclass(frozen=True, slots=True)
class Pacing:
    """Of one run or several together. `low` and `high` are P5 and P95 of the windows, of which there are so many."""

    mean: float
    low: float
    high: float
    num_windows: int

    @classmethod
    def of(cls, paces: Sequence[Pace]) -> "Pacing":
        windows = [value for pace in paces for value in pace.windows]
        low, high = np.percentile(windows, [5, 95])
        mean = sum(pace.paced_seconds for pace in paces) / sum(pace.cost_seconds for pace in paces)
        return cls(mean, float(low), float(high), len(windows))


def without_spells(cost: StepCost, paces: Sequence[Pace]) -> StepCost:
    """What is left to chance once these paces are given: the scatter without those of its spells that outlast a window,
    and at most as much of them as the paces vary. The same cost where they do not, or where it has no spells."""
    sigma = cost.sigma(Regime.DECODE)
    varies = float(np.log([value for pace in paces for value in pace.windows]).var())
    if cost.drift is None or not sigma or not varies:
        return cost
    fading = cost.drift.num_steps / (sum(pace.num_steps for pace in paces) / sum(len(pace.windows) for pace in paces))
    seen = 2.0 * fading * (1.0 - fading * -expm1(-1.0 / fading))
    given = min(varies / sigma**2, cost.drift.share * seen)
    left = 1.0 - given
    drift = cost.drift._replace(share=(cost.drift.share - given) / left)
    spreads = tuple(
        spread._replace(sigma=spread.sigma * sqrt(left), factors=narrowed(spread.factors, left))
        for spread in cost.spreads
    )
    return replace(cost, drift=drift, spreads=spreads)
