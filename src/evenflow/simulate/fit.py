"""Fitting a step's cost (cost.py) to steps that an engine took.

For a given sharpness p and knee N* = w / g the model is linear in its coefficients:

    seconds = t0 + g (N*^p + N^p)^(1/p) + r R + a A + k (K + B)

(a chunk reads a position as a decode does, so both share k), so p and N* are searched on a grid, and the five
coefficients are the non-negative least squares of the *relative* error (a step of 2 ms and one of 200 ms count alike),
reweighted by Huber's rule so that a page fault or a neighbour does not bend the model. Of five coefficients all 31
subsets are tried, which is exact and takes a millisecond.

A machine is faster or slower for a while, so the errors of steps that follow each other are alike, and least squares
would take a slow second full of long contexts for the cost of long contexts. So each row has the one before it
subtracted, times how much of an error is still there a step later (Cochrane and Orcutt, 1949): what differs between
neighbours counts more than what differs between minutes. On a processor of two speeds that takes a tenth off the error
on other days' steps.

p and N* are chosen on contiguous parts of the run that the coefficients have not seen. The line through knots then
takes up what is left over log2 N, shrunk towards nothing where few steps say so, and a last factor makes the total time
come out right.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evenflow.simulate.cost import (
    Bounds,
    Identity,
    Knot,
    Quality,
    Regime,
    Spread,
    StepCost,
    StepFeatures,
    hull_of,
)
from evenflow.simulate.cost_file import CostError
from evenflow.simulate.levels import drift_of, factors_of

SHARPNESSES = (2.0, 4.0, 8.0)
LEAST_STEPS = 50
_HUBER = 1.5  # in robust standard deviations
_LEAST_OUTLIER = 0.05  # a step within a twentieth is none
_ITERATIONS = 6
_NUM_FOLDS = 5
_NUM_KNEES = 12
_PRIOR_STEPS = 5.0  # a knot believes its residual as much as so many steps say
_MOST_FITTED = 20_000
_WINSOR = 5.0
_PIECE = 20
_TAME = 0.5
_MOST_KEPT = 0.8
_LEAST_FOR_SIGMA = 8
_LEAST_FOR_FACTORS = 60

_Array = NDArray[np.float64]


class StepSample(NamedTuple):
    """`seconds` is without what copying blocks took, `gap_seconds` the time to the next step, None if it had to wait
    for work or was held up; of `swapped_blocks` copies took `swap_seconds`. `follows`: the sample before it is of the
    step before it, which ended a moment ago."""

    features: StepFeatures
    seconds: float
    gap_seconds: float | None = None
    swapped_blocks: int = 0
    swap_seconds: float = 0.0
    follows: bool = False


class _Steps(NamedTuple):
    """(P, D, A, K, R) a row; seconds; and whether the step came right after the one in the row before."""

    features: _Array
    seconds: _Array
    follows: NDArray[np.bool_]

    @classmethod
    def of(cls, samples: Sequence[StepSample]) -> "_Steps":
        features = np.array([sample.features for sample in samples], dtype=np.float64).reshape(-1, 5)
        follows = np.array([sample.follows for sample in samples])
        follows[:1] = False
        return cls(features, np.array([sample.seconds for sample in samples]), follows)

    def take(self, chosen: NDArray[np.int64]) -> "_Steps":
        together = self.follows[chosen]
        together[0] = False
        together[1:] &= np.diff(chosen) == 1
        return _Steps(self.features[chosen], self.seconds[chosen], together)

    @property
    def kinds(self) -> _Array:
        """0, 1, 2 for decodes only, both, and prefill only: each has errors of its own size."""
        prefills, decodes = self.features[:, 0], self.features[:, 1]
        kinds: _Array = np.where(prefills == 0.0, 0, np.where(decodes > 0.0, 1, 2))
        return kinds


def _design(features: _Array, knee: float, sharpness: float) -> _Array:
    prefills, decodes, prefill_context, decode_context, num_scheduled = features.T
    tokens = prefills + decodes
    soft = (knee**sharpness + tokens**sharpness) ** (1.0 / sharpness)
    reads = decode_context + (num_scheduled - decodes) * prefill_context / np.maximum(prefills, 1.0)
    return np.column_stack([np.ones(len(tokens)), soft, num_scheduled, prefill_context, reads])


_SUBSETS = [list(chosen) for size in range(1, 6) for chosen in combinations(range(5), size)]


def non_negative_least_squares(design: _Array, target: _Array) -> _Array:
    """The exact one, of few columns: the best of the subsets whose own solution has no negative part."""
    scales = np.maximum(np.sqrt((design * design).mean(axis=0)), 1e-300)
    scaled = design / scales
    gram, moment = scaled.T @ scaled, scaled.T @ target
    best, best_gain = np.zeros(design.shape[1]), 0.0
    for chosen in _SUBSETS:
        part = gram[np.ix_(chosen, chosen)]
        try:
            solution = np.linalg.solve(part + 1e-12 * np.trace(part) * np.eye(len(chosen)), moment[chosen])
        except np.linalg.LinAlgError:
            continue
        if (solution < 0.0).any():
            continue
        gain = float(2.0 * solution @ moment[chosen] - solution @ part @ solution)
        if gain > best_gain:
            best, best_gain = np.zeros(design.shape[1]), gain
            best[chosen] = solution
    result: _Array = best / scales
    return result


def _huber_fit(design: _Array, steps: _Steps, iterations: int = _ITERATIONS) -> _Array:
    """What is an outlier is judged within each kind of step: where most steps are decodes, and those fit closely, no
    prefill must pass for one."""
    kinds, follows = steps.kinds, np.flatnonzero(steps.follows)
    relative = design / steps.seconds[:, None]
    ones = np.ones(len(relative))
    whitened, target, weights = relative, ones, ones
    coefficients = np.zeros(design.shape[1])
    for iteration in range(iterations):
        root = np.sqrt(weights)
        coefficients = non_negative_least_squares(whitened * root[:, None], target * root)
        if iteration == 0:
            kept = _kept_after_a_step(relative @ coefficients - 1.0, follows)
            whitened, target = relative.copy(), ones.copy()
            whitened[follows] -= kept * relative[follows - 1]
            target[follows] -= kept
        errors = np.abs(whitened @ coefficients - target)
        limit = np.full(len(errors), _LEAST_OUTLIER)
        for kind in range(3):
            own = kinds == kind
            if own.any():
                limit[own] = max(_HUBER * float(np.median(errors[own])) / 0.6745, _LEAST_OUTLIER)
        weights = np.minimum(1.0, limit / np.maximum(errors, 1e-12))
    return coefficients


def _kept_after_a_step(errors: _Array, follows: NDArray[np.int64]) -> float:
    """How much of a step's error the next one has as well, between 0 and what leaves the level still to be seen."""
    if len(follows) < LEAST_STEPS // 2:
        return 0.0
    tame = np.clip(errors - np.median(errors), -_TAME, _TAME)
    power = float((tame[follows - 1] ** 2).sum())
    return min(max(float(tame[follows] @ tame[follows - 1]) / power, 0.0), _MOST_KEPT) if power else 0.0


def _unseen_error(steps: _Steps, knee: float, sharpness: float) -> float:
    """The mean relative error on parts of the run that the coefficients have not seen, each kind of step alike."""
    kinds = steps.kinds
    folds = np.arange(len(kinds)) * _NUM_FOLDS // len(kinds)
    design = _design(steps.features, knee, sharpness)
    errors = np.empty(len(kinds))
    for fold in range(_NUM_FOLDS):
        out = folds == fold
        coefficients = _huber_fit(design[~out], steps.take(np.flatnonzero(~out)), iterations=3)
        errors[out] = np.abs(design[out] @ coefficients / steps.seconds[out] - 1.0)
    return float(np.mean([errors[kinds == kind].mean() for kind in range(3) if (kinds == kind).any()]))


def _shape(steps: _Steps) -> tuple[float, float]:
    """Knee and sharpness that predict best what they have not seen: the knee first, then both nearby."""
    most = float((steps.features[:, 0] + steps.features[:, 1]).max())
    knees = np.geomspace(1.0, 4.0 * max(most, 2.0), _NUM_KNEES)
    middle = SHARPNESSES[1]
    tried = {(index, middle): _unseen_error(steps, float(knee), middle) for index, knee in enumerate(knees)}
    best, _ = min(tried, key=lambda key: tried[key])
    for sharpness in SHARPNESSES:
        for index in range(max(0, best - 1), min(len(knees), best + 2)):
            if (index, sharpness) not in tried:
                tried[index, sharpness] = _unseen_error(steps, float(knees[index]), sharpness)
    index, sharpness = min(tried, key=lambda key: tried[key])
    return float(knees[index]), sharpness


def _with_knots(cost: StepCost, steps: _Steps, predicted: _Array) -> StepCost:
    """Hat functions at whole powers of 2, by ridge regression on the relative residual."""
    features, seconds, _ = steps
    at = np.log2(np.maximum(features[:, 0] + features[:, 1], 1.0))
    places = np.arange(np.floor(at.min()), np.ceil(at.max()) + 1.0)
    hats = np.maximum(0.0, 1.0 - np.abs(at[:, None] - places[None, :]))
    residual = np.clip(seconds / predicted - 1.0, -0.5, 0.5)
    relative = hats * (1.0 / predicted)[:, None]
    typical = np.array([np.average(predicted, weights=column) if column.any() else 1.0 for column in hats.T])
    ridge = np.diag(_PRIOR_STEPS / typical**2)
    heights = np.linalg.solve(relative.T @ relative + ridge, relative.T @ residual)
    return replace(cost, knots=tuple(Knot(float(x), float(y)) for x, y in zip(places, heights, strict=True)))


def _predict(cost: StepCost, samples: Sequence[StepSample]) -> _Array:
    return np.array([cost.seconds(sample.features) for sample in samples])


def _fitted(identity: Identity, samples: Sequence[StepSample]) -> StepCost:
    steps = _Steps.of(samples)
    knee, sharpness = _shape(_thinned(steps, _MOST_FITTED // 10))
    thin = _thinned(steps, _MOST_FITTED)
    t0, g, r, a, k = map(float, _huber_fit(_design(thin.features, knee, sharpness), thin))
    hull = hull_of([each.features for each in samples])
    cost = StepCost(identity, t0, g * knee, g, sharpness, r, a, k, prefill_read_seconds=k, hull=hull)
    cost = _with_knots(cost, steps, _predict(cost, samples))
    return _unbiased(cost, samples, steps)


def tamed_logarithms(ratios: _Array) -> _Array:
    """Those beyond some robust standard deviations are drawn in to there: a stall is no property of anything."""
    logarithms = np.log(ratios)
    centre = float(np.median(logarithms))
    limit = _WINSOR * max(float(np.median(np.abs(logarithms - centre))) / 0.6745, 1e-6)
    tamed: _Array = np.clip(logarithms, centre - limit, centre + limit)
    return tamed


def _unbiased(cost: StepCost, samples: Sequence[StepSample], steps: _Steps) -> StepCost:
    """Scaled so that the total time is right, and with the scatter of each regime; single outliers count little."""
    predicted = _predict(cost, samples)
    tamed = tamed_logarithms(steps.seconds / predicted)
    factor = float((predicted * np.exp(tamed)).sum() / predicted.sum())
    spreads = []
    for regime in Regime:
        own = np.array([sample.features.regime is regime for sample in samples])
        num_steps, sigma = int(own.sum()), float(tamed[own].std()) if own.any() else 0.0
        if num_steps >= _LEAST_FOR_SIGMA:
            factors = factors_of(np.exp(tamed[own])) if num_steps >= _LEAST_FOR_FACTORS else ()
            spreads.append(Spread(regime, sigma, num_steps, factors))
    return replace(cost.slowed(factor), spreads=tuple(spreads), drift=drift_of(tamed, steps.follows))


def _thinned(steps: _Steps, most: int) -> _Steps:
    """Of a long run, pieces of successive steps spread over it."""
    num_steps = len(steps.seconds)
    if num_steps <= most:
        return steps
    num_pieces = max(1, most // _PIECE)
    starts = np.linspace(0, num_steps - _PIECE, num_pieces).astype(np.int64)
    return steps.take(np.unique((starts[:, None] + np.arange(_PIECE)[None, :]).ravel()))


def quality_of(
    cost: StepCost, samples: Sequence[StepSample], held_out: str, paces: Sequence[float] | None = None
) -> Quality:
    """How well the cost predicts these steps, which its fit must not have seen; times `paces`, one a step, if given."""
    if not samples:
        return Quality(held_out, 0)
    seconds = np.array([sample.seconds for sample in samples])
    predicted = _predict(cost, samples)
    if paces is not None:
        predicted *= np.array(paces)
    errors = np.abs(predicted / seconds - 1.0)
    bias = float(predicted.sum() / seconds.sum() - 1.0)
    return Quality(held_out, len(samples), float(errors.mean()), float(np.percentile(errors, 95)), bias)


def fit_cost(identity: Identity, samples: Iterable[StepSample], *, kv_tokens: int | None = None) -> StepCost:
    """Raises CostError where the steps are too few or all alike. A fifth of the run, its middle, is held out to say how
    good the fit is; the cost itself is then fitted to all of it."""
    steps = [sample for sample in samples if sample.seconds > 0.0 and sample.features.num_tokens > 0]
    if len(steps) < LEAST_STEPS:
        raise CostError(f"{len(steps)} steps are too few to fit a cost to; give at least {LEAST_STEPS}")
    begin, end = 2 * len(steps) // 5, 3 * len(steps) // 5
    trial = _fitted(identity, [*steps[:begin], *steps[end:]])
    quality = quality_of(trial, steps[begin:end], "a fifth of the steps, in one piece")
    cost = _fitted(identity, steps)
    gaps = [sample.gap_seconds for sample in steps if sample.gap_seconds is not None]
    copies = [(sample.swapped_blocks, sample.swap_seconds) for sample in steps if sample.swapped_blocks]
    return replace(
        cost,
        qualities=(quality,),
        gap_seconds=_typical_gap(gaps),
        kv_tokens=kv_tokens,
        swap_block_seconds=sum(s for _, s in copies) / sum(b for b, _ in copies) if copies else None,
        notes=_notes(cost.hull),
    )


def _typical_gap(gaps: Sequence[float]) -> float:
    """The mean without the longest twentieth: what the loop does after every step counts (applying it, delivering),
    and what it does now and then does not."""
    if not gaps:
        return 0.0
    ordered = np.sort(np.array(gaps))
    return float(ordered[: max(1, round(0.95 * len(ordered)))].mean())


def _notes(hull: Sequence[Bounds]) -> tuple[str, ...]:
    constant = [bounds.feature for bounds in hull if bounds.low == bounds.high]
    if not constant:
        return ()
    return (f"{', '.join(constant)} never changed in the steps that this cost was fitted to",)
