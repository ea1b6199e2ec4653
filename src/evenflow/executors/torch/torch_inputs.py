"""A step's arrays without kernels: some twenty operations of numpy, whatever the number of tokens."""

import numpy as np
import torch

from evenflow.executors.torch.layout import Arranged, build_layout, token_positions
from evenflow.executors.torch.rows import Int64s, RequestRows


class TorchArrangement:
    def __init__(self, rows: RequestRows, block_size: int) -> None:
        self._rows = rows
        self._block_size = block_size

    def arrange(self, chunks: Int64s, num_tokens: int, width: int) -> Arranged:
        row_of, starts, lengths, samples = chunks
        query_start = np.zeros(len(row_of) + 1, dtype=np.int32)
        np.cumsum(lengths, out=query_start[1:])
        context_len = starts.astype(np.int32)
        block_tables = self._rows.block_tables[:, :width][row_of]
        layout = build_layout(query_start, context_len, block_tables, block_size=self._block_size)
        sampling = np.flatnonzero(samples)
        sampling_rows = row_of[sampling]
        return Arranged(
            positions=torch.from_numpy(token_positions(query_start, context_len).astype(np.int64)),
            layout=layout,
            highest_slot=int(layout.slots.max()),
            logit_rows=query_start[1:][sampling] - 1,
            sampling_rows=sampling_rows,
            places=(starts + lengths)[sampling] - self._rows.num_prompt_tokens[sampling_rows],
        )
