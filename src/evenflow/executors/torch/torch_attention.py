"""Paged attention in plain torch, for where there are no kernels: the same results, no Python per token.

A chunk of the pool is [keys [block_size, head_dim], values [block_size, head_dim]] here, int8 after its scales.
Sequences with one query row are padded to the longest and attend as one batch; longer chunks attend one by one.

What lies beyond a sequence's end is nobody's, or another's: it is read as zeros, because a NaN there would come through
a mask (0 * NaN is NaN).
"""

import numpy as np
import torch
from torch.nn.functional import pad, scaled_dot_product_attention

from evenflow.executors.torch.kv_memory import AttentionShape, KVMemory, padded_head_dim
from evenflow.executors.torch.layout import BatchLayout
from evenflow.executors.torch.turn import Turn, turned


class TorchAttention:
    __slots__ = ("_batch", "_chunks", "_decodes", "_memory", "_model", "_slots")

    def __init__(self, memory: KVMemory, model: AttentionShape) -> None:
        self._memory = memory
        self._model = model
        self._batch: BatchLayout | None = None
        self._slots = torch.empty(0, dtype=torch.long)
        self._decodes = np.empty(0, dtype=np.int64)
        self._chunks = np.empty(0, dtype=np.int64)

    def begin(self, batch: BatchLayout) -> None:
        self._batch = batch
        self._slots = torch.from_numpy(batch.slots).long()
        lengths = np.diff(batch.query_start)
        self._decodes = np.flatnonzero(lengths == 1)
        self._chunks = np.flatnonzero(lengths > 1)

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        self._write(layer, k, v)
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        if len(self._decodes):
            self._attend_decodes(layer, q, out)
        for seq in self._chunks:
            self._attend_chunk(layer, int(seq), q, out)
        return out.flatten(1)

    def attend_fused(self, layer: int, qkv: torch.Tensor, turn: Turn) -> torch.Tensor:
        model = self._model
        heads = qkv.view(len(qkv), -1, model.head_dim)
        qk = turned(heads[:, : -model.num_kv_heads], turn)
        queries, keys = qk[:, : model.num_heads].to(qkv.dtype), qk[:, model.num_heads :]
        return self.attend(layer, queries, keys, heads[:, -model.num_kv_heads :].float())

    def _halves(self, layer: int) -> torch.Tensor:
        """[num_blocks, kv_heads, 2, block_size, padded head_dim] of the pool's dtype."""
        memory, size = self._memory, self._memory.block_size
        dim = padded_head_dim(memory.head_dim)
        chunks = memory.pool[layer, :, :, _scales_bytes(memory) :].view(memory.dtype)
        return chunks.view(memory.num_blocks, memory.num_kv_heads, 2, size, dim)

    def _scales(self, layer: int) -> torch.Tensor:
        """[num_blocks, kv_heads, 2, block_size] of float32; int8 pools only."""
        memory = self._memory
        scales = memory.pool[layer, :, :, : _scales_bytes(memory)].view(torch.float32)
        return scales.view(memory.num_blocks, memory.num_kv_heads, 2, memory.block_size)

    def _write(self, layer: int, k: torch.Tensor, v: torch.Tensor) -> None:
        memory = self._memory
        blocks, offsets = self._slots // memory.block_size, self._slots % memory.block_size
        both = torch.stack((k, v), dim=2)  # [T, kv_heads, 2, head_dim]
        if memory.dtype == torch.int8:
            scales = both.float().abs().amax(dim=-1) / 127.0
            both = (both.float() / scales.clamp_min(1e-30).unsqueeze(-1)).round()
            self._scales(layer)[blocks, :, :, offsets] = scales
        padding = padded_head_dim(memory.head_dim) - memory.head_dim
        self._halves(layer)[blocks, :, :, offsets] = pad(both.to(memory.dtype), (0, padding))

    def _gather(
        self, layer: int, blocks: torch.Tensor, end: torch.Tensor, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of block tables [n, m] up to `end` [n]: two of [n, kv_heads, m * block_size, head_dim]."""
        halves = self._halves(layer)[blocks][..., : self._memory.head_dim]
        if self._memory.dtype == torch.int8:
            halves = halves.float() * self._scales(layer)[blocks].unsqueeze(-1)
        both = halves.to(dtype).permute(3, 0, 2, 1, 4, 5).flatten(3, 4)
        beyond = torch.arange(both.shape[3]) >= end.unsqueeze(1)
        both = both.masked_fill(beyond[:, None, :, None], 0.0)
        return both[0], both[1]

    def _attend_decodes(self, layer: int, q: torch.Tensor, out: torch.Tensor) -> None:
        assert self._batch is not None
        model, size = self._model, self._memory.block_size
        rows = torch.from_numpy(self._batch.query_start[self._decodes]).long()
        position = torch.from_numpy(self._batch.context_len[self._decodes]).unsqueeze(1)
        num_blocks = int(position.max()) // size + 1
        tables = self._tables(self._decodes, position.flatten() // size + 1, num_blocks)
        keys, values = self._gather(layer, tables, position.flatten() + 1, q.dtype)
        queries = q[rows].reshape(
            len(rows), model.num_kv_heads, -1, model.head_dim
        )  # a group's heads are rows that share their keys
        visible = self._visible(layer, position, num_blocks * size)[:, None, None]
        attended = scaled_dot_product_attention(queries, keys, values, attn_mask=visible, scale=model.attention_scale)
        out[rows] = attended.flatten(1, 2)

    def _attend_chunk(self, layer: int, seq: int, q: torch.Tensor, out: torch.Tensor) -> None:
        assert self._batch is not None
        model, size = self._model, self._memory.block_size
        start, end = int(self._batch.query_start[seq]), int(self._batch.query_start[seq + 1])
        context = int(self._batch.context_len[seq])
        position = torch.arange(context, context + end - start)
        num_blocks = int(position[-1]) // size + 1
        tables = self._tables(np.array([seq]), torch.tensor([num_blocks]), num_blocks)
        keys, values = self._gather(layer, tables, position[-1:] + 1, q.dtype)
        group = model.num_heads // model.num_kv_heads
        grouped = q[start:end].reshape(end - start, model.num_kv_heads, group, model.head_dim)
        queries = grouped.permute(1, 2, 0, 3).flatten(1, 2)
        visible = self._visible(layer, position.unsqueeze(1), num_blocks * size).repeat(group, 1)
        attended = scaled_dot_product_attention(
            queries.unsqueeze(0), keys, values, attn_mask=visible, scale=model.attention_scale
        )[0]
        regrouped = attended.reshape(model.num_kv_heads, group, end - start, model.head_dim)
        out[start:end] = regrouped.permute(2, 0, 1, 3).flatten(1, 2)

    def _tables(
        self, seqs: "np.ndarray[tuple[int], np.dtype[np.int64]]", used: torch.Tensor, width: int
    ) -> torch.Tensor:
        """Block tables of some sequences, with block 0 in the place of what lies beyond a sequence's end."""
        assert self._batch is not None
        tables = torch.from_numpy(self._batch.block_tables[seqs, :width]).long()
        return tables.masked_fill(torch.arange(width) >= used.unsqueeze(1), 0)

    def _visible(self, layer: int, position: torch.Tensor, num_keys: int) -> torch.Tensor:
        """position [n, 1] -> [n, num_keys]"""
        key = torch.arange(num_keys)
        visible = key <= position
        window = self._model.sliding_windows[layer]
        return visible if window is None else visible & (key > position - window)


def _scales_bytes(memory: KVMemory) -> int:
    return 2 * 4 * memory.block_size if memory.dtype == torch.int8 else 0
