"""What settings differ by on a machine that is not the same from one run to the next: a randomised block design.

    round 1    A  C  B         log objective = setting + round + slope x covariate + chance
    round 2    B  A  C
    ...                        a run is one observation, however many requests it had

A run's requests share the machine of those minutes, so more requests do not make it more than one observation. What
the minutes of a round have in common goes into the round's term and out of every difference; what is left, from one
run to the next within a round, is the chance that the differences have to be held against. On logarithms, because a
slow machine multiplies. (Randomised blocks: Fisher, *The Design of Experiments*, 1935; with a covariate, and the
formulas as used: Montgomery, *Design and Analysis of Experiments*, chapters 4 and 15.)

Why Student's t and no bootstrap of rounds: rounds are few. A bootstrap of few clusters gives intervals that are too
narrow (Cameron, Gelbach and Miller 2008); of two rounds there are three different resamples. Student's t pays for every
degree of freedom, and one standard deviation for all settings leaves (settings - 1)(rounds - 1) of them rather than
rounds - 1. The price: settings are taken to be equally noisy (on logarithms); one that is noisier than the others, such
as one that drowns in its queue, has a true interval wider than is said here, and the others narrower ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import expm1, inf, sqrt

import numpy as np
from numpy.typing import NDArray

from evenflow.replay.bootstrap import Floats, Interval
from evenflow.tune.student import student_t


@dataclass(frozen=True, slots=True)
class Run:
    """`loss` is a logarithm, less is better. `covariate` is what is known of the run besides, 0 if it is as usual."""

    setting: str
    round: int
    loss: float
    covariate: float = 0.0


@dataclass(frozen=True, slots=True)
class Blocked:
    """`effects` are the settings' losses in rounds that all had; `sd` is a run's within its round, on the logarithm.

    `degrees` is 0 if there is nothing to tell chance by: one round, or one setting. `slope` is of the covariate, None
    without one, and `slope_error` its standard error.
    """

    settings: tuple[str, ...]
    effects: Floats
    covariance: Floats
    sd: float
    degrees: int
    slope: float | None = None
    slope_error: float | None = None

    def difference(self, base: str, other: str, *, level: float = 0.95, comparisons: int = 1) -> Interval:
        """Of the loss, other minus base. With `comparisons`, all of so many hold at once (Bonferroni)."""
        one, two = self.settings.index(base), self.settings.index(other)
        estimate = float(self.effects[two] - self.effects[one])
        if not self.degrees or one == two:
            return Interval(estimate, *((0.0, 0.0) if one == two else (None, None)))
        variance = self.covariance[one, one] + self.covariance[two, two] - 2 * self.covariance[one, two]
        wide = student_t(1 - (1 - level) / comparisons, self.degrees) * self.sd * sqrt(max(0.0, float(variance)))
        return Interval(estimate, estimate - wide, estimate + wide)

    def best(self, among: Sequence[str] | None = None) -> str:
        return min(among or self.settings, key=lambda each: self.effects[self.settings.index(each)])

    def lost(self, chosen: str, others: Sequence[str], *, level: float = 0.95) -> Interval:
        """What the chosen one loses against the best of all, as a share; never below 0, for it is one of them.

        The best is not known, only the best as measured. So the interval is of the loss against whichever is the best
        (Hsu 1984, multiple comparisons with the best), from simultaneous intervals against each of the others.
        """
        against = [each for each in others if each != chosen]
        found = [self.difference(each, chosen, level=level, comparisons=len(against)) for each in against]
        estimate = max((each.estimate for each in found), default=0.0)
        if not self.degrees:
            return Interval(expm1(max(0.0, estimate)), None, None)
        low = max((each.low for each in found if each.low is not None), default=0.0)
        high = max((each.high for each in found if each.high is not None), default=0.0)
        return Interval(*(expm1(max(0.0, each)) for each in (estimate, low, high)))


def blocked(runs: Sequence[Run], *, with_covariate: bool = False) -> Blocked:
    """By least squares; a setting may be missing from a round, or be in it more than once. Losses are finite."""
    assert runs and all(abs(run.loss) < inf for run in runs), "somebody ran, and came to an end"
    settings = tuple(dict.fromkeys(run.setting for run in runs))
    rounds = sorted({run.round for run in runs})
    design = np.zeros((len(runs), len(settings) + len(rounds) + with_covariate))
    for row, run in enumerate(runs):
        design[row, settings.index(run.setting)] = 1.0
        design[row, len(settings) + rounds.index(run.round)] = 1.0
        if with_covariate:
            design[row, -1] = run.covariate
    losses = np.array([run.loss for run in runs])
    # Settings and rounds both add up to 1, so one column is too many; the shortest solution shares it out alike.
    inverse = np.linalg.pinv(design.T @ design, hermitian=True)
    found = inverse @ (design.T @ losses)
    left = losses - design @ found
    degrees = len(runs) - int(np.linalg.matrix_rank(design))
    sd = sqrt(float(left @ left) / degrees) if degrees > 0 else 0.0
    num = len(settings)
    level = float(found[num : num + len(rounds)].mean())  # a setting's loss is meant in the mean of the rounds
    slope = float(found[-1]) if with_covariate else None
    return Blocked(
        settings,
        np.asarray(found[:num] + level),
        np.asarray(inverse[:num, :num]),
        sd,
        max(0, degrees),
        slope,
        sd * sqrt(max(0.0, float(inverse[-1, -1]))) if with_covariate else None,
    )


def depends_on_setting(runs: Sequence[Run], values: Sequence[float], *, num_draws: int = 2000, seed: int = 0) -> float:
    """How often chance alone would part these values by setting as much as they are parted: a randomisation test.

    The settings of a round came in an order that was drawn, so without any dependence every exchange of values within
    a round was as likely (Fisher's test, by Monte Carlo).
    """
    settings = _numbers([run.setting for run in runs])
    rounds = _numbers([run.round for run in runs])
    centred = np.array(values, dtype=np.float64)
    for each in np.unique(rounds):
        centred[rounds == each] -= centred[rounds == each].mean()
    rng = np.random.default_rng(seed)

    def parted(what: Floats) -> float:
        sums = np.bincount(settings, weights=what)
        return float((sums * sums / np.bincount(settings)).sum())

    observed, as_large = parted(centred), 1
    drawn = centred.copy()
    for _ in range(num_draws):
        for each in np.unique(rounds):
            drawn[rounds == each] = rng.permutation(centred[rounds == each])
        as_large += parted(drawn) >= observed * (1 - 1e-9)
    return as_large / (num_draws + 1)


def _numbers(values: Sequence[str] | Sequence[int]) -> NDArray[np.int64]:
    known = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return np.array([known[value] for value in values], dtype=np.int64)
