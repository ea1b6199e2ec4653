"""Sampling parameters as columns, by the row number of a request (rows.py): what both bodies of the sampler read."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenflow.core.request import SamplingParams
from evenflow.executors.torch.vocab_blocks import Floats, Ids

# Below this a temperature is 0: dividing by it would leave one token anyway, or overflow.
MIN_TEMPERATURE = 1e-5


@dataclass(frozen=True, slots=True, eq=False)
class SamplingColumns:
    """`temperature` 0 is greedy; `top_k` 0, `top_p` 1 and `min_p` 0 are off."""

    temperature: Floats
    top_k: Ids
    top_p: NDArray[np.float64]
    min_p: Floats
    seed: NDArray[np.uint64]

    @classmethod
    def for_rows(cls, count: int) -> "SamplingColumns":
        return cls(
            temperature=np.zeros(count, dtype=np.float32),
            top_k=np.zeros(count, dtype=np.int64),
            top_p=np.ones(count, dtype=np.float64),
            min_p=np.zeros(count, dtype=np.float32),
            seed=np.zeros(count, dtype=np.uint64),
        )

    def set(self, row: int, sampling: SamplingParams, *, seed: int, vocab_size: int) -> None:
        top_k = 0 if sampling.top_k >= vocab_size else sampling.top_k
        draws = sampling.temperature >= MIN_TEMPERATURE and top_k != 1
        self.temperature[row] = sampling.temperature if draws else 0.0
        self.top_k[row] = top_k
        self.top_p[row] = sampling.top_p
        self.min_p[row] = sampling.min_p
        self.seed[row] = seed

    def filters(self, row: int) -> bool:
        return bool(self.top_k[row] > 0 or self.top_p[row] < 1.0 or self.min_p[row] > 0.0)
