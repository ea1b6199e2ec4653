"""Paged attention of one step: write the new keys and values, then let every query row attend over its cached keys.

One face, two bodies: the C++ kernels where there are any (and blocks are whole groups of 16 tokens), else torch. Each
arranges the bytes of the pool as it likes, so a pool belongs to the body that first wrote to it.
"""

from typing import Protocol

import numpy as np
import torch

from evenflow.executors.torch.kv_memory import AttentionShape, KVMemory
from evenflow.executors.torch.layout import BatchLayout
from evenflow.executors.torch.native_attention import NativeAttention
from evenflow.executors.torch.torch_attention import TorchAttention
from evenflow.executors.torch.turn import Turn
from evenflow.kernels.native import Kernels, load_kernels

NATIVE_BLOCK = 16
NATIVE_MAX_HEAD_DIM = 512


def native_can_attend(memory: KVMemory) -> bool:
    return memory.block_size % NATIVE_BLOCK == 0 and memory.head_dim <= NATIVE_MAX_HEAD_DIM


class AttentionBody(Protocol):
    def begin(self, batch: BatchLayout) -> None: ...

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor: ...

    def attend_fused(self, layer: int, qkv: torch.Tensor, turn: Turn) -> torch.Tensor: ...


class PagedAttention:
    """`begin` once per step, then one call per layer in any order. A result is valid until the next call."""

    __slots__ = ("_body", "_memory", "description")

    def __init__(self, memory: KVMemory, model: AttentionShape, *, kernels: Kernels | None = None) -> None:
        kernels = load_kernels() if kernels is None else kernels
        self._memory = memory
        self._body: AttentionBody
        if kernels.table is None:
            self._body, self.description = TorchAttention(memory, model), f"torch ({kernels.reason})"
        elif not native_can_attend(memory):
            why = f"native kernels want blocks of {NATIVE_BLOCK}n tokens and heads of at most {NATIVE_MAX_HEAD_DIM}"
            self._body, self.description = TorchAttention(memory, model), f"torch ({why})"
        else:
            self._body, self.description = NativeAttention(memory, model, kernels.table), f"native, {kernels.isa}"

    def begin(self, batch: BatchLayout) -> None:
        """Take the layout of this step; its arrays must live, unchanged, until the next `begin`."""
        ends = batch.context_len + np.diff(batch.query_start)
        assert ends.max() <= batch.block_tables.shape[1] * self._memory.block_size
        assert batch.slots.max() < self._memory.num_blocks * self._memory.block_size
        self._body.begin(batch)

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q [T, heads, head_dim], k and v [T, kv_heads, head_dim] -> [T, heads * head_dim], of q's dtype."""
        return self._body.attend(layer, q, k, v)

    def fused(self, layer: int, qkv: torch.Tensor, turn: Turn) -> torch.Tensor:
        """The same from the projection itself, [T, (heads + 2 * kv_heads) * head_dim], before norm and rotation.

        `qkv` is overwritten.
        """
        return self._body.attend_fused(layer, qkv, turn)
