"""A plan as arrays: what the model, the attention and the sampler read.

Chunks lie back to back in the order of the plan. For chunks of 1, 3 and 1 tokens that start at positions 7, 0 and 4:

    query_start    0   1           4   5
    positions      7 | 0   1   2 | 4
    context_len    7 | 0         | 4            tokens of the request before this step
    slots          block_tables[chunk, position // block_size] * block_size + position % block_size
    logit_rows     0 |         3 | 4            the last token of each chunk that samples

The arrays may be views of buffers that the next step overwrites. The plan is transposed by `zip`, so there is no Python
work per token. The arithmetic on what it gives has one face and two bodies: one call of the C++ kernels, or numpy.
"""

from collections.abc import Sequence
from itertools import chain, compress
from typing import NamedTuple, Protocol

import numpy as np
import torch

from evenflow.core.plan import StepPlan
from evenflow.core.request import RequestId
from evenflow.executors.torch.layout import Arranged, BatchLayout
from evenflow.executors.torch.native_inputs import NativeArrangement
from evenflow.executors.torch.rows import Int32s, Int64s, RequestRows
from evenflow.executors.torch.torch_inputs import TorchArrangement
from evenflow.kernels.native import Kernels, load_kernels


class StepInputs(NamedTuple):
    """Valid until the next `build`. `sampling_*` and `places` have one entry per chunk that samples: its request, its
    row, and how many output tokens it has already."""

    token_ids: torch.Tensor
    sampling_ids: Sequence[RequestId]
    positions: torch.Tensor
    layout: BatchLayout
    highest_slot: int
    logit_rows: Int32s
    sampling_rows: Int64s
    places: Int64s


class Arrangement(Protocol):
    def arrange(self, chunks: Int64s, num_tokens: int, width: int) -> Arranged:
        """`chunks` is [4, n], rows contiguous: of each chunk its row, where it starts, how many tokens it has, whether
        it samples; all have `num_tokens`, and the longest block table `width` blocks."""
        ...


class InputBuilder:
    """Owns the buffers. They grow if a step is larger than any before it."""

    def __init__(
        self, rows: RequestRows, *, max_num_batched_tokens: int, block_size: int, kernels: Kernels | None = None
    ) -> None:
        table = (load_kernels() if kernels is None else kernels).table
        self._rows = rows
        self._body: Arrangement = (
            TorchArrangement(rows, block_size) if table is None else NativeArrangement(rows, block_size, table)
        )
        self._chunks = np.zeros((4, len(rows.block_tables)), dtype=np.int64)
        self._in_chunks: dict[int, Sequence[int]] = {}  # what its rows hold
        self._reserve(max_num_batched_tokens)

    def _reserve(self, num_tokens: int) -> None:
        self._token_ids = np.zeros(num_tokens, dtype=np.int64)
        self._token_tensor = torch.from_numpy(self._token_ids)
        self._fed, self._num_fed = self._token_tensor[:0], 0

    def build(self, plan: StepPlan) -> StepInputs:
        """The arrays of a plan that has chunks."""
        ids, starts, tokens, tables, samples = zip(*plan.chunks, strict=True)
        numbers = self._rows.numbers(ids)
        width = self._rows.refresh_tables(numbers, tables)
        lengths = tuple(map(len, tokens))
        num_tokens = sum(lengths)
        if num_tokens > len(self._token_ids):
            self._reserve(num_tokens)
        self._token_ids[:num_tokens] = list(chain.from_iterable(tokens))
        if num_tokens != self._num_fed:
            self._fed, self._num_fed = self._token_tensor[:num_tokens], num_tokens
        sampling_ids = ids if all(samples) else tuple(compress(ids, samples))
        arranged = self._body.arrange(self._columns(numbers, starts, lengths, samples), num_tokens, width)
        return StepInputs(self._fed, sampling_ids, *arranged)

    def _columns(self, *columns: Sequence[int]) -> Int64s:
        """Side by side. From one step to the next of a batch that decodes only one of them changes."""
        for index, column in enumerate(columns):
            if self._in_chunks.get(index) != column:
                self._in_chunks[index] = column
                self._chunks[index, : len(column)] = column
        return self._chunks[:, : len(columns[0])]
