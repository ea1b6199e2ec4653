"""How steps scatter around their cost: factors of mean 1, by the level of a standard normal variable.

A step draws z and takes `factors[z]`, a line between the levels, flat beyond the last. So a scatter has any shape that
was measured (machines have modes, and steps that take three times as long; a log-normal has neither), and z carries
what one step shares with the next: z = sqrt(share) slow + sqrt(1 - share) fast, with `slow` a first-order
autoregression over steps. A machine that is slow for a second makes a queue; one that is slow for a step does not.
"""

from collections.abc import Sequence
from itertools import accumulate
from math import erf, exp, sqrt

import numpy as np
from numpy.typing import NDArray

from evenflow.simulate.cost import Drift

LEVELS = tuple(level / 4.0 for level in range(-10, 11))
"""Standard deviations; the outermost are seldom enough for a calibration to see them a few times."""

_LEAST_SHARE = 0.02
_CLOSE, _FAR = 1, 8  # steps apart, over which a drift is told from what is new with every step

Array = NDArray[np.float64]


def factors_of(ratios: Array) -> tuple[float, ...]:
    """Of measured over predicted seconds: their quantiles at the levels, scaled to a mean of 1."""
    shares = [100.0 * 0.5 * (1.0 + erf(level / sqrt(2.0))) for level in LEVELS]
    return _of_mean_one(np.percentile(ratios, shares))


def narrowed(factors: Sequence[float], share: float) -> tuple[float, ...]:
    """A scatter of the same kind whose level has only this share of the variance, of mean 1 again."""
    return _of_mean_one(factors_at(sqrt(share) * np.array(LEVELS), factors)) if len(factors) else ()


def _of_mean_one(factors: Array) -> tuple[float, ...]:
    grid = np.linspace(-6.0, 6.0, 2401)
    density = np.exp(-grid * grid / 2.0)
    mean = float((density * np.interp(grid, LEVELS, factors)).sum() / density.sum())
    return tuple(float(factor / mean) for factor in factors)


def factors_at(levels: Array, factors: Sequence[float]) -> Array:
    result: Array = np.interp(levels, LEVELS, factors)
    return result


def drift_of(residuals: Array, follows: NDArray[np.bool_]) -> Drift | None:
    """From residuals of steps in order, and whether each follows the one before it without a pause. None where steps
    know nothing of each other."""
    centred = residuals - residuals.mean()
    variance = float((centred * centred).mean())
    if variance <= 0.0 or len(residuals) < 4 * _FAR:
        return None
    close, far = (_covariance(centred, follows, lag) / variance for lag in (_CLOSE, _FAR))
    if close <= _LEAST_SHARE:
        return None
    fading = min(max(far / close, 0.01), 0.99) ** (1.0 / (_FAR - _CLOSE))
    share = min(max(close / fading, 0.0), 0.98)
    return Drift(share, float(min(max(-1.0 / np.log(fading), 1.0), 1e4)))


def _covariance(centred: Array, follows: NDArray[np.bool_], lag: int) -> float:
    breaks = np.cumsum(~follows)
    together = breaks[lag:] == breaks[:-lag]
    return float((centred[lag:] * centred[:-lag])[together].mean()) if together.any() else 0.0


class Levels:
    """Standard normal, one a step, drifting; made in blocks."""

    def __init__(self, rng: np.random.Generator, drift: Drift | None) -> None:
        self._rng = rng
        self._share = 0.0 if drift is None else drift.share
        self._fading = 0.0 if drift is None else exp(-1.0 / drift.num_steps)
        self._slow: float | None = None

    def next(self, count: int) -> Array:
        fast: Array = self._rng.standard_normal(count)
        if not self._share:
            return fast
        fading = self._fading
        news = self._rng.standard_normal(count)
        news[1:] *= sqrt(1.0 - fading * fading)
        news[0] = news[0] if self._slow is None else fading * self._slow + sqrt(1.0 - fading * fading) * news[0]
        slow = list(accumulate(news.tolist(), lambda was, new: fading * was + new))
        self._slow = slow[-1]
        return sqrt(self._share) * np.array(slow) + sqrt(1.0 - self._share) * fast
