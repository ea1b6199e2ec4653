"""The paged KV pool as memory: per layer, block and KV head one chunk of bytes, which only attention looks into.

    pool [num_layers, num_blocks, num_kv_heads, chunk_bytes]     uint8, 4 KiB-aligned, touched by first use,
                                                                  or a little ahead of it (touch_ahead.py)

A chunk holds the keys and the values of `block_size` tokens of one KV head (csrc/kv_pool.h has the native arrangement,
attention.py the fallback's); int8 chunks begin with a scale per token for each. Block ids are those of the core.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

LANES = 16
PAGE = 4096

ELEMENT_BYTES = {torch.float32: 4, torch.bfloat16: 2, torch.int8: 1}


class AttentionShape(Protocol):
    """What attention needs to know of a model; models/config.py has it."""

    @property
    def num_layers(self) -> int: ...
    @property
    def num_heads(self) -> int: ...
    @property
    def num_kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def sliding_windows(self) -> Sequence[int | None]:
        """Per layer, how many keys a query sees, itself included; None where it sees all."""
        ...

    @property
    def attention_scale(self) -> float: ...


def padded_head_dim(head_dim: int) -> int:
    return -(-head_dim // LANES) * LANES


def chunk_bytes(head_dim: int, block_size: int, dtype: torch.dtype) -> int:
    scales = 4 if dtype == torch.int8 else 0
    return 2 * block_size * (padded_head_dim(head_dim) * ELEMENT_BYTES[dtype] + scales)


def bytes_per_block(model: AttentionShape, block_size: int, dtype: torch.dtype) -> int:
    """What one block id costs, all layers together."""
    return model.num_layers * model.num_kv_heads * chunk_bytes(model.head_dim, block_size, dtype)


class KVMemory:
    """The pool's bytes. `dtype` is float32, bfloat16 or int8."""

    __slots__ = ("block_size", "dtype", "head_dim", "num_blocks", "num_kv_heads", "pool")

    def __init__(self, model: AttentionShape, *, num_blocks: int, block_size: int, dtype: torch.dtype) -> None:
        assert num_blocks > 0 and block_size > 0
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.num_kv_heads = model.num_kv_heads
        self.head_dim = model.head_dim
        self.dtype = dtype
        chunk = chunk_bytes(model.head_dim, block_size, dtype)
        self.pool = _lazy_zeros(model.num_layers * num_blocks * model.num_kv_heads * chunk).view(
            model.num_layers, num_blocks, model.num_kv_heads, chunk
        )

    @property
    def num_bytes(self) -> int:
        return self.pool.numel()

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Everything that makes up a block: slice `[:, block_id]` of each."""
        return (self.pool,)


def _lazy_zeros(num_bytes: int) -> torch.Tensor:
    """Zeroed memory that costs nothing until it is touched, aligned so that a cache line of the pool is one."""
    memory = np.zeros(num_bytes + PAGE, dtype=np.uint8)
    offset = -memory.ctypes.data % PAGE
    return torch.from_numpy(memory)[offset : offset + num_bytes]
