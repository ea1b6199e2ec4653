"""A small world for attention tests: random mixed batches, and a dense reference that knows nothing of pages."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import torch

from evenflow.executors.torch.attention import PagedAttention
from evenflow.executors.torch.kv_memory import KVMemory
from evenflow.executors.torch.layout import BatchLayout, build_layout
from evenflow.executors.torch.turn import Turn
from evenflow.kernels.native import INSTRUCTION_SETS, Kernels, load_kernels

FALLBACK = Kernels(None, None, "the test asked for the fallback")


def runnable_kernels() -> list[Kernels]:
    """The fallback and every instruction set that this processor runs."""
    native = [load_kernels(isa) for isa in INSTRUCTION_SETS]
    return [FALLBACK, *(kernels for kernels in native if kernels.table is not None)]


@dataclass(frozen=True, slots=True)
class Shape:
    num_heads: int = 9
    num_kv_heads: int = 3
    head_dim: int = 64
    sliding_windows: tuple[int | None, ...] = (None,)
    attention_scale: float = 0.125

    @property
    def num_layers(self) -> int:
        return len(self.sliding_windows)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Queries, keys and values of a whole sequence, [length, heads, head_dim]."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor


@cache
def random_sequence(shape: Shape, length: int, dtype: torch.dtype, seed: int) -> Tokens:
    """The same tensors for the same question: to be read only."""
    generator = torch.Generator().manual_seed(seed)

    def draw(heads: int) -> torch.Tensor:
        return torch.randn(length, heads, shape.head_dim, generator=generator).to(dtype)

    return Tokens(draw(shape.num_heads), draw(shape.num_kv_heads), draw(shape.num_kv_heads))


def dense(shape: Shape, sequence: Tokens, layer: int = 0) -> torch.Tensor:
    """Textbook attention in float64: [length, heads * head_dim]."""
    q, k, v = (x.double() for x in (sequence.q, sequence.k, sequence.v))
    group = shape.num_heads // shape.num_kv_heads
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = torch.einsum("qhd,khd->hqk", q, k) * shape.attention_scale
    query, key = torch.arange(len(q)).unsqueeze(1), torch.arange(len(q))
    hidden = key > query
    window = shape.sliding_windows[layer]
    if window is not None:
        hidden = hidden | (key <= query - window)
    weights = scores.masked_fill(hidden, -torch.inf).softmax(dim=-1)
    return torch.einsum("hqk,khd->qhd", weights, v).flatten(1)


class AttentionWorld:
    """Runs chunks of sequences through a paged pool whose blocks are handed out in a shuffled order."""

    def __init__(
        self, shape: Shape, kernels: Kernels, *, dtype: torch.dtype, block_size: int = 16, num_blocks: int = 400
    ) -> None:
        self.shape = shape
        self.block_size = block_size
        self.memory = KVMemory(shape, num_blocks=num_blocks, block_size=block_size, dtype=dtype)
        self.attention = PagedAttention(self.memory, shape, kernels=kernels)
        self._free = list(range(num_blocks))
        random.Random(7).shuffle(self._free)
        self._tables: dict[int, list[int]] = {}
        self._done: dict[int, int] = {}

    def poison(self) -> None:
        """Fill the whole pool with NaN, as if its former owners had gone wrong."""
        self.memory.pool.fill_(0xFF)

    def fused_step(self, sequence: Tokens, turn: Turn) -> torch.Tensor:
        """One whole sequence as a fused projection, with its turn."""
        self.attention.begin(self._layout([0], [len(sequence.q)]))
        return self.attention.fused(0, torch.cat((sequence.q, sequence.k, sequence.v), dim=1).flatten(1), turn).clone()

    def step(self, sequences: Sequence[Tokens], lengths: Sequence[int], layer: int = 0) -> list[torch.Tensor]:
        """Run the next lengths[i] tokens of sequence i (0: it sits this step out); the results of those that ran."""
        running = [i for i, length in enumerate(lengths) if length]
        starts = {i: self._done.get(i, 0) for i in running}
        layout = self._layout(running, [lengths[i] for i in running])

        def rows(name: str) -> torch.Tensor:
            return torch.cat([getattr(sequences[i], name)[starts[i] : starts[i] + lengths[i]] for i in running])

        self.attention.begin(layout)
        out = self.attention(layer, rows("q"), rows("k"), rows("v")).clone()
        return [out[begin:end] for begin, end in pairwise(layout.query_start.tolist())]

    def _layout(self, running: Sequence[int], lengths: Sequence[int]) -> BatchLayout:
        contexts = [self._done.get(i, 0) for i in running]
        for i, context, length in zip(running, contexts, lengths, strict=True):
            table = self._tables.setdefault(i, [])
            while len(table) * self.block_size < context + length:
                table.append(self._free.pop())
            self._done[i] = context + length
        width = max(len(self._tables[i]) for i in running)
        tables = np.full((len(running), width), -1, dtype=np.int32)
        for row, i in enumerate(running):
            tables[row, : len(self._tables[i])] = self._tables[i]
        query_start = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
        return build_layout(query_start, np.array(contexts, dtype=np.int32), tables, block_size=self.block_size)
