"""What the runs of a grid tell besides the winner: the frontier, and what each knob does around one configuration.

A configuration is on the frontier if no other has more throughput, an earlier TTFT P95 and a smaller ITL P99 at once.
An effect is of one knob alone, all others as in the configuration around which one looks, paired by request.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from evenflow.replay.bootstrap import Interval
from evenflow.tune.objective import Goal, Statistic
from evenflow.tune.observations import DONE, MET, TOKENS, Observations, sample_key
from evenflow.tune.ranking import Candidate, Ranking
from evenflow.tune.resampled import resampler_of, statistic_of
from evenflow.tune.space import Axis, Space, Value

TTFT_P95 = Statistic("ttft", 95.0)
ITL_P99 = Statistic("itl", 99.0)
HEADLINE = (Statistic("ttft", 50.0), TTFT_P95, Statistic("itl", 50.0), ITL_P99, Statistic("tpot", None))


def throughput(run: Observations) -> float:
    """Output tokens per second of the window."""
    return run.per_second(TOKENS)


def completed(run: Observations) -> float:
    """Requests per second of the window."""
    return run.per_second(DONE)


def value(run: Observations, statistic: Statistic) -> float:
    """Seconds; infinite if so many requests failed."""
    sample = run.samples[sample_key(statistic.service_class, statistic.metric)]
    return float(statistic_of(sample, statistic, np.ones((1, run.num_time_cells)))[0])


def objective_value(run: Observations, goal: Goal) -> float:
    objective = goal.objective
    if objective.statistic is not None:
        return value(run, objective.statistic)
    return run.per_second(TOKENS if objective.bounds is None else MET)


def relative_difference(base: Candidate, other: Candidate, goal: Goal, *, level: float = 0.95) -> Interval:
    """Of the objective, (other - base) / base, paired. Not finite, or without an interval, if the base is nothing."""
    resampler = resampler_of([base.run, other.run])
    found = resampler.objective(goal.objective, [base.run, other.run])
    if not np.isfinite(found.observed).all() or found.observed[0] == 0.0:
        return Interval(float("nan"), None, None)
    estimate = float(found.observed[1] / found.observed[0]) - 1.0
    if not resampler.enough or not np.isfinite(found.resampled).all() or (found.resampled[:, 0] == 0.0).any():
        return Interval(estimate, None, None)
    ratios = found.resampled[:, 1] / found.resampled[:, 0] - 1.0
    low, high = np.quantile(ratios, ((1 - level) / 2, (1 + level) / 2)).tolist()
    return Interval(estimate, low, high)


def frontier(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """From the earliest TTFT on."""
    points = [
        (each, (-throughput(each.run), value(each.run, TTFT_P95), value(each.run, ITL_P99))) for each in candidates
    ]
    found = [(each, point) for each, point in points if not any(_dominates(other, point) for _, other in points)]
    found.sort(key=lambda pair: (pair[1][1], pair[1][2], pair[0].cell.key))
    return tuple(each for each, _ in found)


def _dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True)) and tuple(one) != tuple(other)


@dataclass(frozen=True, slots=True)
class Setting:
    """One value of a knob, all others as in the centre. `change` is of the objective, relative to the centre."""

    value: Value
    candidate: Candidate
    change: Interval | None
    """None for the centre itself."""


@dataclass(frozen=True, slots=True)
class Effect:
    axis: Axis
    settings: tuple[Setting, ...]


def effects(ranking: Ranking, space: Space, centre: Candidate) -> Iterator[Effect]:
    for axis in space.varied:
        settings = []
        for each in axis.values:
            found = ranking.of(centre.cell.with_value(axis.name, each))
            if found is None:
                continue  # an illegal cell, or one whose run failed
            change = None if found is centre else relative_difference(centre, found, ranking.goal)
            settings.append(Setting(each, found, change))
        yield Effect(axis, tuple(settings))
