"""A plan as arrays: what the model, the attention and the sampler read.

Chunks lie back to back in the order of the plan. For chunks of 1, 3 and 1 tokens that start at positions 7, 0 and 4:

    query_start    0   1           4   5
    positions      7 | 0   1   2 | 4
    context_len    7 | 0         | 4            tokens of the request before this step
    slots          block_tables[chunk, position // block_size] * block_size + position % block_size
    logit_rows     0 |         3 | 4            the last token of each chunk that samples

The arrays may be views of buffers that the next step overwrites. A step of 64 decodes costs about 80 us: the plan is
transposed by `zip`, and there is no Python work per token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, compress

import numpy as np
import torch

from evenflow.core.plan import StepPlan
from evenflow.core.request import RequestId
from evenflow.executors.torch.layout import BatchLayout, build_layout, token_positions
from evenflow.executors.torch.rows import Int32s, Int64s, RequestRows


@dataclass(frozen=True, slots=True, eq=False)
class StepInputs:
    """Valid until the next `build`. `sampling_*` and `places` have one entry per chunk that samples: its request, its
    row, and how many output tokens it has already."""

    token_ids: torch.Tensor
    positions: torch.Tensor
    layout: BatchLayout
    logit_rows: Int32s
    sampling_ids: Sequence[RequestId]
    sampling_rows: Int64s
    places: Int64s


class InputBuilder:
    """Owns the buffers. They grow if a step is larger than any before it."""

    def __init__(self, *, max_num_seqs: int, max_num_batched_tokens: int, block_size: int) -> None:
        self._block_size = block_size
        self._query_start = np.zeros(max_num_seqs + 1, dtype=np.int32)
        self._context_len = np.zeros(max_num_seqs, dtype=np.int32)
        self._reserve(max_num_batched_tokens)

    def _reserve(self, num_tokens: int) -> None:
        self._token_ids = np.zeros(num_tokens, dtype=np.int64)
        self._positions = np.zeros(num_tokens, dtype=np.int64)
        self._token_tensor = torch.from_numpy(self._token_ids)
        self._position_tensor = torch.from_numpy(self._positions)

    def build(self, plan: StepPlan, rows: RequestRows) -> StepInputs:
        """The arrays of a plan that has chunks."""
        ids, starts, tokens, tables, samples = zip(*plan.chunks, strict=True)
        numbers = rows.numbers(ids)
        width = rows.refresh_tables(numbers, tables)
        row_of = np.array(numbers, dtype=np.int64)
        first = np.array(starts, dtype=np.int64)
        lengths = np.array(list(map(len, tokens)), dtype=np.int64)
        query_start = self._query_start[: len(ids) + 1]
        np.cumsum(lengths, out=query_start[1:])
        num_tokens = int(query_start[-1])
        if num_tokens > len(self._token_ids):
            self._reserve(num_tokens)
        self._token_ids[:num_tokens] = list(chain.from_iterable(tokens))
        context_len = self._context_len[: len(ids)]
        context_len[:] = first
        block_tables = rows.block_tables[:, :width][row_of]
        self._positions[:num_tokens] = token_positions(query_start, context_len)
        sampling = np.flatnonzero(samples)
        return StepInputs(
            token_ids=self._token_tensor[:num_tokens],
            positions=self._position_tensor[:num_tokens],
            layout=build_layout(query_start, context_len, block_tables, block_size=self._block_size),
            logit_rows=query_start[1:][sampling] - 1,
            sampling_ids=tuple(compress(ids, samples)),
            sampling_rows=row_of[sampling],
            places=(first + lengths)[sampling] - rows.num_prompt_tokens[row_of[sampling]],
        )
