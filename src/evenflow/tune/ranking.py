"""Runs of many configurations, judged: who keeps the limits, who is best, and whom the data cannot tell from the best.

Two kinds of doubt are kept apart. What luck in the load could have done is the bootstrap's (a limit is *missed* only if
the interval says so, and the confidence set is over the objective). What the cost model gets wrong is no luck, and no
interval over requests knows it: `tolerance` is how near to the best, and to a limit, a simulated configuration stays in
the race for a live run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import NormalDist

import numpy as np

from evenflow.tune.confidence_set import CONFIDENCE, confidence_set
from evenflow.tune.equal import equal_cells
from evenflow.tune.objective import Goal, Limit
from evenflow.tune.observations import Observations
from evenflow.tune.resampled import Figures, Resampler, resampler_of
from evenflow.tune.space import Cell

# Closer than this to the best, the objective does not decide: room under the limits does.
INDIFFERENCE = 0.01
_HARD_TO_TELL = 16
_ALONE = 0.95  # of an interval that is looked at by itself


class Kept(Enum):
    """Whether a limit is kept, as far as the data say."""

    YES = "kept"
    OPEN = "cannot be told"
    NO = "missed"


@dataclass(frozen=True, slots=True)
class Against:
    """One limit, and what a configuration came to. Without an interval the run was too short for one."""

    limit: Limit
    value: float
    low: float | None
    high: float | None

    @property
    def ratio(self) -> float:
        """Above 1 it is missed."""
        return self.value / self.limit.seconds

    @property
    def kept(self) -> Kept:
        if self.low is None or self.high is None:
            return Kept.YES if self.ratio <= 1.0 else Kept.NO
        if self.high <= self.limit.seconds:
            return Kept.YES
        return Kept.NO if self.low > self.limit.seconds else Kept.OPEN


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration with its run. `objective` and its interval are as the objective is written, not as a loss."""

    cell: Cell
    run: Observations
    objective: float
    low: float | None
    high: float | None
    limits: tuple[Against, ...]

    @property
    def worst_ratio(self) -> float:
        """How near it comes to the limit that binds; 0 without limits."""
        return max((against.ratio for against in self.limits), default=0.0)

    @property
    def keeps_limits(self) -> bool:
        """By the observed values."""
        return self.worst_ratio <= 1.0


@dataclass(frozen=True, slots=True)
class Ranking:
    """`best` is None if no configuration keeps the limits; `contenders` then holds the nearest misses.

    `contenders` come in the order in which they should be tried, the best first; each stands for itself and for those
    whose runs were the same to the last digit (`twins`, equal.py).
    """

    goal: Goal
    candidates: tuple[Candidate, ...]
    best: Candidate | None
    contenders: tuple[Candidate, ...]
    twins: tuple[tuple[Cell, ...], ...]
    confidence: float
    num_blocks: int

    def of(self, cell: Cell) -> Candidate | None:
        return next((each for each in self.candidates if each.cell == cell), None)

    def equal_to(self, cell: Cell) -> tuple[Cell, ...]:
        """The others whose runs were the same, of a contender."""
        for one, others in zip(self.contenders, self.twins, strict=True):
            if cell == one.cell or cell in others:
                return tuple(each for each in (one.cell, *others) if each != cell)
        return ()

    def next_best(self) -> Candidate | None:
        """Who would be the best but for the contenders and those whose runs were the same."""
        sign = -1.0 if self.goal.objective.more_is_better else 1.0
        taken = {each.cell for each in self.contenders}.union(*self.twins)
        others = [each for each in self.candidates if each.cell not in taken]
        if self.best is None:
            return min(others, key=lambda each: each.worst_ratio, default=None)
        best = self.best
        return min(others, key=lambda each: _promise(each, best, sign), default=None)

    @property
    def nearest(self) -> Candidate:
        """The best, or else who comes nearest to keeping its limits; of equal ones the one that stands for them."""
        return self.best or self.contenders[0]


def rank(
    runs: Sequence[tuple[Cell, Observations]], goal: Goal, *, tolerance: float = 0.0, confidence: float = CONFIDENCE
) -> Ranking:
    """`runs` are of the same requests."""
    assert runs, "something was run"
    observed = [run for _, run in runs]
    resampler = _resampler(observed, goal)
    found = resampler.objective(goal.objective, observed)
    limits = [resampler.statistic(limit.statistic, observed) for limit in goal.limits]
    # One error rate for all limits of all configurations together.
    level = 1.0 - (1.0 - confidence) / max(1, len(limits) * len(runs))
    candidates = []
    for index, (cell, run) in enumerate(runs):
        low, high = _interval(found, index, _ALONE, resampler)
        against = tuple(
            Against(limit, float(figures.observed[index]), *_interval(figures, index, level, resampler))
            for limit, figures in zip(goal.limits, limits, strict=True)
        )
        candidates.append(Candidate(cell, run, float(found.observed[index]), low, high, against))
    legal = [index for index, each in enumerate(candidates) if each.keeps_limits]
    best = _best([candidates[index] for index in legal], goal)
    contenders = _contenders(candidates, best, found, goal, resampler, tolerance, confidence)
    firsts, twins = _without_twins(contenders)
    if best is not None:
        best = next((one for one, others in zip(firsts, twins, strict=True) if best.cell in others), best)
    return Ranking(goal, tuple(candidates), best, firsts, twins, confidence, resampler.blocks.num)


def _resampler(runs: Sequence[Observations], goal: Goal) -> Resampler:
    """Made for the runs that are nearest to the best by their end-to-end latency, which drowning runs are not."""
    by_latency = sorted(runs, key=lambda run: (run.num_failed, float(np.median(run.samples["e2e"].values))))
    return resampler_of(by_latency[:_HARD_TO_TELL])


def _interval(figures: Figures, index: int, level: float, resampler: Resampler) -> tuple[float | None, float | None]:
    """Percentiles of the resamples; for levels that need more of them than there are, stretched as a normal's are."""
    if not resampler.enough:
        return None, None
    column = figures.resampled[:, index]
    if not np.isfinite(column).all():
        return float(np.min(column)), float("inf")
    low, middle, high = np.quantile(column, ((1 - _ALONE) / 2, 0.5, (1 + _ALONE) / 2)).tolist()
    wider = _normal(level) / _normal(_ALONE)
    return middle + (low - middle) * wider, middle + (high - middle) * wider


def _normal(level: float) -> float:
    return NormalDist().inv_cdf((1 + level) / 2)


def _best(legal: Sequence[Candidate], goal: Goal) -> Candidate | None:
    """The best objective; among those that come so near to it as makes no difference, the most room under limits."""
    if not legal:
        return None
    sign = 1.0 if goal.objective.more_is_better else -1.0
    top = max(sign * each.objective for each in legal)
    near = [each for each in legal if sign * each.objective >= top - INDIFFERENCE * abs(top)]
    if goal.limits:
        return min(near, key=lambda each: (each.worst_ratio, -sign * each.objective, each.cell.key))
    return max(near, key=lambda each: (sign * each.objective, each.cell.key))


def _contenders(
    candidates: Sequence[Candidate],
    best: Candidate | None,
    found: Figures,
    goal: Goal,
    resampler: Resampler,
    tolerance: float,
    confidence: float,
) -> list[Candidate]:
    """Those that may be the best, by the data or within the tolerance of the model, in order of promise."""
    if best is None:
        miss = min(each.worst_ratio for each in candidates)
        near = [each for each in candidates if each.worst_ratio <= miss * (1.0 + tolerance)]
        return sorted(near, key=lambda each: each.worst_ratio)
    sign = -1.0 if goal.objective.more_is_better else 1.0
    legal = [index for index, each in enumerate(candidates) if each.keeps_limits]
    chosen: set[int] = set()
    if resampler.enough:
        losses = _losses(found, legal, sign)
        chosen = {legal[index] for index in confidence_set(losses, confidence=confidence)}
    # What may keep its limits after all is of interest only if it would then be as good as the best that does.
    within = abs(best.objective) * max(tolerance, INDIFFERENCE)
    for index, each in enumerate(candidates):
        if _may_keep(each, tolerance) and sign * (each.objective - best.objective) <= within:
            chosen.add(index)
    members = [candidates[index] for index in sorted(chosen)]
    return sorted(members, key=lambda each: _promise(each, best, sign))


def _losses(found: Figures, columns: Sequence[int], sign: float) -> Figures:
    """Logarithms: latencies and rates of a load differ by factors, and one that drowns must not hide, by the size of
    its own luck, what the others differ by."""
    least = 1e-6 * float(np.abs(found.observed[np.isfinite(found.observed)]).max(initial=0.0)) or 1e-12
    observed, resampled = (np.log(np.maximum(part, least)) for part in (found.observed, found.resampled))
    return Figures(sign * observed[list(columns)], sign * resampled[:, list(columns)])


def _may_keep(candidate: Candidate, tolerance: float) -> bool:
    return all(against.kept is not Kept.NO or against.ratio <= 1.0 + tolerance for against in candidate.limits)


def _promise(candidate: Candidate, best: Candidate, sign: float) -> tuple[bool, bool, float, float, str]:
    """The best itself, then who keeps the limits, then how much is lost, then room under the limits."""
    lost = sign * (candidate.objective - best.objective) / (abs(best.objective) or 1.0)
    lost = max(0.0, lost - INDIFFERENCE)
    return candidate is not best, not candidate.keeps_limits, lost, candidate.worst_ratio, candidate.cell.key


def _without_twins(contenders: Sequence[Candidate]) -> tuple[tuple[Candidate, ...], tuple[tuple[Cell, ...], ...]]:
    """In the order of the contenders. The one that stands for equal ones is not the one that happened to come first."""
    by_cell = {each.cell: each for each in contenders}
    groups = equal_cells([(each.cell, each.run) for each in contenders])
    return tuple(by_cell[group[0]] for group in groups), tuple(group[1:] for group in groups)
