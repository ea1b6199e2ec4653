"""Paged attention by the C++ kernels: fill in the argument records and call (csrc/attention.h has the method)."""

import ctypes

import torch

from evenflow.executors.torch.kv_memory import AttentionShape, KVMemory
from evenflow.executors.torch.layout import BatchLayout
from evenflow.executors.torch.turn import Turn
from evenflow.kernels.abi import DTYPE_CODES, AttentionArgs, BatchArgs, KernelTable, KvWriteArgs, PoolArgs, RotaryArgs

NO_WINDOW = 2**31 - 1


class NativeAttention:
    __slots__ = (
        "_attention",
        "_batch",
        "_layer_bytes",
        "_layout",
        "_out",
        "_pool_base",
        "_rotary",
        "_table",
        "_windows",
        "_write",
    )

    def __init__(self, memory: KVMemory, model: AttentionShape, table: KernelTable) -> None:
        assert model.num_heads % model.num_kv_heads == 0
        pool = PoolArgs(
            block_size=memory.block_size,
            num_kv_heads=memory.num_kv_heads,
            head_dim=memory.head_dim,
            dtype=DTYPE_CODES[memory.dtype],
        )
        self._table = table
        self._pool_base = memory.pool.data_ptr()
        self._layer_bytes = memory.pool.stride(0)
        self._windows = [NO_WINDOW if window is None else window for window in model.sliding_windows]
        self._layout: BatchLayout | None = None
        self._batch = BatchArgs()
        batch = ctypes.pointer(self._batch)
        self._write = KvWriteArgs(pool=pool, batch=batch)
        self._rotary = RotaryArgs(pool=pool, batch=batch, num_heads=model.num_heads, by_token=True)
        self._attention = AttentionArgs(pool=pool, batch=batch, num_heads=model.num_heads, scale=model.attention_scale)
        self._out = torch.empty(0)

    def begin(self, batch: BatchLayout) -> None:
        self._layout = batch  # the record points into its arrays
        point_to(batch, self._batch)

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        assert len(q) == self._batch.num_tokens
        q, k, v = _packed_heads(q), _packed_heads(k.to(q.dtype)), _packed_heads(v.to(q.dtype))
        write = self._write
        write.pool.base = self._pool_base + layer * self._layer_bytes
        write.key, write.value = k.data_ptr(), v.data_ptr()
        write.key_stride, write.value_stride = k.stride(0), v.stride(0)
        write.dtype = DTYPE_CODES[q.dtype]
        self._table.kv_write(ctypes.byref(write))
        return self._attend_cached(layer, q)

    def attend_fused(self, layer: int, qkv: torch.Tensor, turn: Turn) -> torch.Tensor:
        assert len(qkv) == self._batch.num_tokens and qkv.stride(1) == 1
        rotary = self._rotary
        half = rotary.pool.head_dim // 2
        assert turn.cos.is_contiguous() and turn.sin.is_contiguous() and turn.cos.numel() == len(qkv) * half
        rotary.pool.base = self._pool_base + layer * self._layer_bytes
        rotary.qkv, rotary.stride, rotary.dtype = qkv.data_ptr(), qkv.stride(0), DTYPE_CODES[qkv.dtype]
        rotary.cos, rotary.sin, rotary.eps = turn.cos.data_ptr(), turn.sin.data_ptr(), turn.eps
        rotary.qk_norm = None if turn.qk_norm is None else turn.qk_norm.data_ptr()
        self._table.rotary(ctypes.byref(rotary))
        return self._attend_cached(layer, qkv.view(len(qkv), -1, rotary.pool.head_dim)[:, : rotary.num_heads])

    def _attend_cached(self, layer: int, q: torch.Tensor) -> torch.Tensor:
        out = self._output(q)
        args = self._attention
        args.pool.base = self._pool_base + layer * self._layer_bytes
        args.query, args.out = q.data_ptr(), out.data_ptr()
        args.query_stride, args.out_stride = q.stride(0), out.stride(0)
        args.window = self._windows[layer]
        args.dtype = DTYPE_CODES[q.dtype]
        self._table.attention(ctypes.byref(args))
        return out

    def _output(self, q: torch.Tensor) -> torch.Tensor:
        """One buffer for all layers and steps: a layer's output is consumed before the next layer's begins."""
        num_tokens, width = q.shape[0], q.shape[1] * q.shape[2]
        if self._out.dtype != q.dtype or self._out.numel() < num_tokens * width:
            self._out = torch.empty(num_tokens * width, dtype=q.dtype)
        return self._out[: num_tokens * width].view(num_tokens, width)


def point_to(batch: BatchLayout, record: BatchArgs) -> None:
    """All but the positions, which a layout does not have."""
    record.query_start, record.context_len = batch.query_start.ctypes.data, batch.context_len.ctypes.data
    record.block_tables, record.slots = batch.block_tables.ctypes.data, batch.slots.ctypes.data
    record.num_seqs, record.max_blocks = batch.block_tables.shape
    record.num_tokens = batch.num_tokens


def _packed_heads(x: torch.Tensor) -> torch.Tensor:
    """The kernels take any stride between tokens (a slice of a fused projection), but heads lie back to back."""
    if x.stride(2) == 1 and x.stride(1) == x.shape[2]:
        return x
    return x.contiguous()
