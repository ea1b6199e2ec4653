"""A step's arrays by the C++ kernels: one call, into buffers that stay (csrc/layout.h).

Views of the buffers are cut anew only where a step has another shape than the one before it: the same objects tell
whoever reads them that what was found out about them still holds. A batch that decodes has one shape for many steps.
Each view that is cut, or asked for its address, takes a microsecond, and five where a model's weights have just swept
the caches.
"""

from ctypes import byref

import numpy as np
import torch

from evenflow.executors.torch.layout import Arranged, BatchLayout
from evenflow.executors.torch.rows import Int32s, Int64s, RequestRows
from evenflow.kernels.abi import KernelTable, LayoutArgs

_Views = tuple[torch.Tensor, BatchLayout, Int32s, Int64s, Int64s]


class NativeArrangement:
    def __init__(self, rows: RequestRows, block_size: int, table: KernelTable) -> None:
        self._table = table
        self._rows = rows  # the record below points into its columns, and into the buffers
        num_rows, max_blocks = rows.block_tables.shape
        self._query_start = np.zeros(num_rows + 1, dtype=np.int32)
        self._context_len = np.zeros(num_rows, dtype=np.int32)
        self._block_tables = np.zeros(num_rows * max_blocks, dtype=np.int32)
        self._logit_rows = np.zeros(num_rows, dtype=np.int32)
        self._sampling_rows = np.zeros(num_rows, dtype=np.int64)
        self._places = np.zeros(num_rows, dtype=np.int64)
        self._args = LayoutArgs(
            tables=rows.block_tables.ctypes.data,
            num_prompt_tokens=rows.num_prompt_tokens.ctypes.data,
            table_stride=max_blocks,
            query_start=self._query_start.ctypes.data,
            context_len=self._context_len.ctypes.data,
            block_tables=self._block_tables.ctypes.data,
            logit_rows=self._logit_rows.ctypes.data,
            sampling_rows=self._sampling_rows.ctypes.data,
            places=self._places.ctypes.data,
            block_size=block_size,
        )
        self._shape: tuple[int, int, int, int] | None = None
        self._views: _Views
        self._reserve(1)

    def _reserve(self, num_tokens: int) -> None:
        self._slots = np.zeros(num_tokens, dtype=np.int32)
        self._positions = torch.zeros(num_tokens, dtype=torch.int64)
        self._args.slots, self._args.positions = self._slots.ctypes.data, self._positions.data_ptr()
        self._shape = None

    def arrange(self, chunks: Int64s, num_tokens: int, width: int) -> Arranged:
        if num_tokens > len(self._slots):
            self._reserve(num_tokens)
        args = self._args
        num_seqs, begin, size = chunks.shape[1], chunks.ctypes.data, chunks.strides[0]
        assert chunks.strides[1] == chunks.itemsize and num_seqs < len(self._query_start)
        args.rows, args.starts, args.lengths, args.samples = begin, begin + size, begin + 2 * size, begin + 3 * size
        args.num_seqs, args.max_blocks = num_seqs, width
        self._table.lay_out(byref(args))
        num_sampling = args.num_sampling
        assert num_sampling >= 0, "a chunk is longer than its block table"
        shape = num_seqs, num_tokens, width, num_sampling
        if shape != self._shape:
            self._views, self._shape = self._cut(*shape), shape
        positions, layout, logit_rows, sampling_rows, places = self._views
        return Arranged(positions, layout, args.highest_slot, logit_rows, sampling_rows, places)

    def _cut(self, num_seqs: int, num_tokens: int, width: int, num_sampling: int) -> "_Views":
        layout = BatchLayout(
            self._query_start[: num_seqs + 1],
            self._context_len[:num_seqs],
            self._block_tables[: num_seqs * width].reshape(num_seqs, width),
            self._slots[:num_tokens],
        )
        return (
            self._positions[:num_tokens],
            layout,
            self._logit_rows[:num_sampling],
            self._sampling_rows[:num_sampling],
            self._places[:num_sampling],
        )
