"""The same resamples of the same requests for every configuration: what luck in the load could have made of each.

Configurations saw the same requests at the same times (common random numbers), so a resample draws the same stretches
of time from all of them, and what is due to the requests cancels out of every difference. Row b of a matrix is one
resample, column k one configuration.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from evenflow.replay.bootstrap import Blocks, Floats, Sample, blocks_of, resampled_mean, resampled_quantile
from evenflow.tune.objective import Objective, Statistic
from evenflow.tune.observations import MET, TOKENS, Observations, sample_key

NUM_RESAMPLES = 600
_SEED = 20261130  # the same data give the same sets


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one figure: as observed (one per configuration), and resampled (resamples x configurations)."""

    observed: Floats
    resampled: Floats


@dataclass(frozen=True, slots=True)
class Resampler:
    """`block_of` maps a cell of time to its block."""

    blocks: Blocks
    draws: Floats

    @property
    def enough(self) -> bool:
        return self.blocks.enough

    def objective(self, objective: Objective, runs: Sequence[Observations]) -> Figures:
        if objective.statistic is not None:
            return self.statistic(objective.statistic, runs)
        key = TOKENS if objective.bounds is None else MET
        return self._figures(runs, lambda run, draws: _per_second(self._sample(run, key), draws, run.seconds))

    def statistic(self, statistic: Statistic, runs: Sequence[Observations]) -> Figures:
        key = sample_key(statistic.service_class, statistic.metric)
        return self._figures(runs, lambda run, draws: statistic_of(self._sample(run, key), statistic, draws))

    def _figures(self, runs: Sequence[Observations], value: Callable[[Observations, Floats], Floats]) -> Figures:
        once = np.ones((1, self.blocks.num))
        observed = np.array([value(run, once)[0] for run in runs])
        resampled = np.array([value(run, self.draws) for run in runs]).reshape(len(runs), len(self.draws)).T
        return Figures(observed, resampled)

    def _sample(self, run: Observations, key: str) -> Sample:
        sample = run.samples[key]
        return Sample(sample.values, self.blocks.of_request[sample.blocks], sample.weights)


def statistic_of(sample: Sample, statistic: Statistic, draws: Floats) -> Floats:
    """One value for each row of `draws`; 0 where there is no observation at all: nobody was late."""
    if not len(sample.values):
        return np.zeros(len(draws))
    if statistic.percent is None:
        return resampled_mean(sample, draws)
    return resampled_quantile(sample, draws, statistic.percent)


def _per_second(sample: Sample, draws: Floats, seconds: float) -> Floats:
    sums = np.bincount(sample.blocks, weights=sample.values, minlength=draws.shape[1])
    return np.asarray(draws @ sums) / seconds


def resampler_of(runs: Sequence[Observations], *, num_resamples: int = NUM_RESAMPLES) -> Resampler:
    """Blocks as long as it takes for differences to the first run to be no longer alike. Give the runs that are hard to
    tell apart: one that drowns in its queue differs by a trend, and has no blocks that are independent at all."""
    assert len({run.num_time_cells for run in runs}) == 1, "runs of the same requests"
    base = [_series(runs[0], key) for key in _RESPECTS]
    differences = [_series(run, key) - before for run in runs[1:] for key, before in zip(_RESPECTS, base, strict=True)]
    blocks = blocks_of(differences or base)
    return Resampler(blocks, blocks.draws(_SEED, num_resamples))


_RESPECTS = ("ttft", "tpot", "e2e")


def _series(run: Observations, key: str) -> Floats:
    """The mean in each cell of time; 0 where there is none."""
    sample = run.samples[key]
    finite = np.where(np.isfinite(sample.values), sample.values, 0.0)
    sums = np.bincount(sample.blocks, weights=finite, minlength=run.num_time_cells)
    counts = np.bincount(sample.blocks, minlength=run.num_time_cells)
    return np.asarray(sums / np.maximum(counts, 1))
