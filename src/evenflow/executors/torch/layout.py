"""Where the tokens of one step lie, and who samples: plain arrays, with nothing in them about a model or a kernel.

sequence i:  query rows   query_start[i] .. query_start[i + 1] - 1      its chunk, back to back with the others
             positions    context_len[i] .. context_len[i] + n - 1
             block table  block_tables[i, position // block_size]       what lies beyond the last position is not read
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Int32Array = NDArray[np.int32]


class BatchLayout(NamedTuple):
    """`slots[t]` is where token t's key and value go: block * block_size + offset. All contiguous."""

    query_start: Int32Array
    context_len: Int32Array
    block_tables: Int32Array
    slots: Int32Array

    @property
    def num_seqs(self) -> int:
        return len(self.context_len)

    @property
    def num_tokens(self) -> int:
        return len(self.slots)


class Arranged(NamedTuple):
    """What inputs.py says of these fields; the numbers of a plan without its names and tokens."""

    positions: Tensor
    layout: BatchLayout
    highest_slot: int
    logit_rows: Int32Array
    sampling_rows: NDArray[np.int64]
    places: NDArray[np.int64]


def token_positions(query_start: Int32Array, context_len: Int32Array) -> Int32Array:
    """The position of every token of the batch, in order."""
    lengths = np.diff(query_start)
    shift = np.repeat(context_len - query_start[:-1], lengths)
    return np.arange(query_start[-1], dtype=np.int32) + shift


def build_layout(
    query_start: Int32Array, context_len: Int32Array, block_tables: Int32Array, *, block_size: int
) -> BatchLayout:
    """Derive the slots from the block tables."""
    positions = token_positions(query_start, context_len)
    rows = np.repeat(np.arange(len(context_len)), np.diff(query_start))
    slots = block_tables[rows, positions // block_size] * np.int32(block_size) + positions % block_size
    layout = BatchLayout(query_start, context_len, block_tables, slots.astype(np.int32, copy=False))
    for name, array in layout._asdict().items():
        assert array.dtype == np.int32 and array.flags.c_contiguous, name
    assert len(query_start) == len(context_len) + 1 == len(block_tables) + 1
    return layout
