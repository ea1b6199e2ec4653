"""The decoder as a program of native kernels, with nothing between them: products, fused norms, rotary and gates.

    embed -> hidden    the residual stream: fp32 beside int8 products, bf16 beside bf16 ones
      | add, norm, quantise             one kernel, which also folds in what the layer before left
    qkv product -> rotary, KV write -> attention -> quantise -> output product
      | add, norm, quantise
    gate/up product, gated -> quantise -> down product         left for the next layer's norm to add, or the end's sum

(bf16 has no quantisation, and is otherwise the same.) `LlamaModel` is the same arithmetic where there are no kernels.
What goes from one kernel to the next is bf16 if it is not int8, even where the stream is fp32: a product over tiles
takes longest over what it writes.

Each row's result depends on that row and its own context alone, bit for bit: integer sums are exact, and every other
reduction has a fixed order. So a request's logits do not depend on what else is in the batch or how its prompt was cut.
"""

from collections.abc import Callable
from ctypes import pointer
from dataclasses import dataclass

import torch
from torch import Tensor

from evenflow.executors.torch.kernel_records import (
    Rows,
    can_gate,
    embed_of,
    norm_of,
    product_of,
    rows_from,
    rows_to,
    sum_of,
    tiled_rows,
)
from evenflow.executors.torch.kv_memory import KVMemory
from evenflow.executors.torch.layout import BatchLayout
from evenflow.executors.torch.logits import Logits
from evenflow.executors.torch.native_attention import NO_WINDOW, point_to
from evenflow.executors.torch.native_head import NativeHead
from evenflow.executors.torch.program import Program
from evenflow.kernels.abi import DTYPE_CODES, AttentionArgs, BatchArgs, GatedArgs, KernelTable, PoolArgs, RotaryArgs
from evenflow.kernels.operators import Gate, Int8Rows
from evenflow.models.architectures import Activation
from evenflow.models.config import ModelConfig, RopeConfig
from evenflow.models.linear import Bf16Linear, Int8Linear, Linear
from evenflow.models.llama import LlamaModel
from evenflow.models.rope import RotaryEmbedding

_BF16 = DTYPE_CODES[torch.bfloat16]
_LEAST_ANGLES = 1024


@dataclass(frozen=True, slots=True, eq=False)
class _Buffers:
    """Everything that a step writes, besides the KV memory. Allocated once, for the largest step.

    `narrow`, `heads` and `wide` are left sides of products: int8 with scales, or bf16 with rows and columns to spare
    for whole tiles (zeros, which nothing overwrites). `gated` is where quantisation finds what `wide` is to have;
    `gate_up` is for models whose gates are not whole panels.
    """

    hidden: Tensor
    qkv: Tensor
    attended: Tensor
    added: Tensor
    gate_up: Tensor
    gated: Tensor
    narrow: Rows
    heads: Rows
    wide: Rows

    @classmethod
    def for_model(cls, config: ModelConfig, num_tokens: int, stream: torch.dtype) -> "_Buffers":
        heads = config.num_heads * config.head_dim
        qkv = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
        left: Callable[[int, int], Rows] = Int8Rows.empty if stream == torch.float32 else tiled_rows
        attended = tiled_rows(num_tokens, heads)
        wide = left(num_tokens, config.intermediate_size)
        whole = can_gate(config.intermediate_size)
        gated = torch.zeros(num_tokens if whole else 0, config.intermediate_size, dtype=torch.bfloat16)
        return cls(
            hidden=torch.zeros(num_tokens, config.hidden_size, dtype=stream),
            qkv=torch.zeros(num_tokens, qkv, dtype=torch.bfloat16),
            attended=attended,
            added=torch.zeros(num_tokens, config.hidden_size, dtype=torch.bfloat16),
            gate_up=torch.zeros(0 if whole else num_tokens, 2 * config.intermediate_size, dtype=torch.bfloat16),
            gated=wide if isinstance(wide, Tensor) else gated,
            narrow=left(num_tokens, config.hidden_size),
            heads=Int8Rows.empty(num_tokens, heads) if stream == torch.float32 else attended,
            wide=wide,
        )


class _Angles:
    """Cosines and sines of all positions so far, one table per distinct rope, and the records that point to it.

    It grows with the longest request that came: 256 bytes per position for heads of 64, where the KV cache of a layer
    takes more. Taken anew in each step they would cost a decode step a quarter of a millisecond.
    """

    def __init__(self, rope: RotaryEmbedding, most_positions: int) -> None:
        self._rope = rope
        self._most = most_positions
        self._cos, self._sin = rope.angles(torch.zeros(0, dtype=torch.int64))
        self._readers: list[RotaryArgs] = []

    def read_by(self, record: RotaryArgs) -> None:
        self._readers.append(record)

    def reach(self, num_positions: int) -> None:
        if num_positions <= len(self._cos):
            return
        roomy = min(max(2 * num_positions, _LEAST_ANGLES), self._most)  # so that it seldom grows
        self._cos, self._sin = self._rope.angles(torch.arange(max(num_positions, roomy)))
        for record in self._readers:
            record.cos, record.sin = self._cos.data_ptr(), self._sin.data_ptr()


class NativeLlama:
    """Model and attention in one, as `TorchExecutor` wants them: `begin`, then `hidden`, then `logits`.

    Every `Linear` of `model` must be packed for these kernels (`can_run`).
    """

    program_class: type[Program] = Program

    @staticmethod
    def can_run(model: LlamaModel) -> bool:
        layer = model.layers[0]
        return isinstance(layer.qkv, Int8Linear | Bf16Linear)

    def __init__(self, model: LlamaModel, memory: KVMemory, table: KernelTable, *, max_num_batched_tokens: int) -> None:
        self.config = model.config
        self._model = model
        self._memory = memory
        self._table = table
        self._layout: BatchLayout | None = None
        self._batch = BatchArgs()  # what all layers' records point to
        self._token_ids: Tensor | None = None  # what the records point to, with the next two
        self._positions: Tensor | None = None
        self._hidden = torch.empty(0)
        self._build(max_num_batched_tokens)

    def begin(self, batch: BatchLayout) -> None:
        """Take the layout of this step; its arrays must live, unchanged, until the next `begin`. The same one again is
        of the same arrays, with other numbers in them."""
        if batch is self._layout:
            return
        if batch.num_tokens > len(self._buffers.hidden):
            self._build(batch.num_tokens)
        self._layout = batch
        point_to(batch, self._batch)
        for angles in self._angles.values():
            angles.reach(batch.block_tables.shape[1] * self._memory.block_size)  # no position is beyond the tables

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, /) -> Tensor:
        raise AssertionError("attention is inside the program")

    def hidden(self, token_ids: Tensor, positions: Tensor, attention: object = None, /) -> Tensor:
        """[T, hidden_size], what the last layer leaves; valid until the next call."""
        if not (token_ids is self._token_ids and positions is self._positions):
            self._point_to(token_ids, positions)
        self._program.run(self._batch.num_tokens)
        return self._hidden

    def _point_to(self, token_ids: Tensor, positions: Tensor) -> None:
        """Asked of tensors in every step, addresses would cost as much as some kernels: the caches are cold by then."""
        assert token_ids.dtype == positions.dtype == torch.int64
        self._embed.token_ids, self._batch.positions = token_ids.data_ptr(), positions.data_ptr()
        self._token_ids, self._positions = token_ids, positions
        self._hidden = self._buffers.hidden[: len(token_ids)]

    def logits(self, hidden: Tensor, /) -> Logits:
        """Rows of `hidden`, at most as many as the step had; valid until the next call."""
        return self._head.logits(hidden)

    # ---- building the program --------------------------------------------------------------------------------------

    def _build(self, num_tokens: int) -> None:
        config = self.config
        self._token_ids = self._positions = None  # of the buffers that were
        self._buffers = _Buffers.for_model(config, num_tokens, self._model.dtype)
        self._angles: dict[RopeConfig, _Angles] = {
            rope: _Angles(RotaryEmbedding(rope, config.head_dim, torch.device("cpu")), config.max_position_embeddings)
            for rope in config.ropes
        }
        self._head = NativeHead(self._model, self._table, self._buffers.narrow)
        self._program = self.program_class(self._table)
        hidden, added = self._buffers.hidden, self._buffers.added
        self._embed = embed_of(self._model.embedding, self._model.embedding_scale, hidden)
        self._program.add("embed", self._embed, counter=(self._embed, "num_rows"))
        for index in range(config.num_layers):
            self._add_attention(index)
            self._add_mlp(index)
        total = sum_of(hidden, added)
        self._program.add("add", total, counter=(total, "num_rows"))

    def _add_attention(self, index: int) -> None:
        layer, buffers = self._model.layers[index], self._buffers
        self._add_norm(layer.attention_norm, buffers.narrow, addend=buffers.added if index else None)
        self._add_product(layer.qkv, buffers.narrow, buffers.qkv)
        self._add_rotary(index, layer.qk_norm)
        self._add_attend(index)
        if isinstance(buffers.heads, Int8Rows):
            self._add_quantise(buffers.attended, buffers.heads)
        self._add_product(layer.output, buffers.heads, buffers.added)
        self._add_post_norm(layer.attention_post_norm)

    def _add_mlp(self, index: int) -> None:
        layer, buffers = self._model.layers[index], self._buffers
        self._add_norm(layer.mlp_norm, buffers.narrow, addend=buffers.added)
        gate = Gate.SILU if self.config.activation is Activation.SILU else Gate.GELU_TANH
        if can_gate(self.config.intermediate_size):
            self._add_product(layer.gate_up, buffers.narrow, buffers.gated, gate=gate)
            if isinstance(buffers.wide, Int8Rows):
                self._add_quantise(buffers.gated, buffers.wide)
        else:
            self._add_product(layer.gate_up, buffers.narrow, buffers.gate_up)
            rows = rows_to(rows_from(buffers.gate_up, self.config.intermediate_size), buffers.wide)
            gated = GatedArgs(rows=rows, activation=gate)
            self._program.add("gated", gated, counter=(gated.rows, "num_rows"))
        self._add_product(layer.down, buffers.wide, buffers.added)
        self._add_post_norm(layer.mlp_post_norm)

    def _add_norm(self, weight: Tensor, out: Rows, *, addend: Tensor | None) -> None:
        args = norm_of(self._buffers.hidden, weight, self.config.rms_norm_eps, out, addend=addend)
        self._program.add("rms_norm", args, counter=(args.rows, "num_rows"))

    def _add_post_norm(self, weight: Tensor | None) -> None:
        """Gemma's norm of what is about to be added, in place."""
        if weight is not None:
            added = self._buffers.added
            args = norm_of(added, weight, self.config.rms_norm_eps, added)
            self._program.add("rms_norm", args, counter=(args.rows, "num_rows"))

    def _add_quantise(self, rows: Tensor, out: Int8Rows) -> None:
        args = rows_to(rows_from(rows, rows.shape[1]), out)
        self._program.add("quantise", args, counter=(args, "num_rows"))

    def _add_product(self, linear: Linear, rows: Rows, out: Tensor, *, gate: Gate | None = None) -> None:
        args = product_of(linear, rows, out, gate=gate)
        kernel = "int8_gemm" if isinstance(linear, Int8Linear) else "bf16_gemm"
        self._program.add(kernel, args, counter=(args, "m"))

    def _pool(self, index: int) -> PoolArgs:
        memory = self._memory
        return PoolArgs(
            base=memory.pool.data_ptr() + index * memory.pool.stride(0),
            block_size=memory.block_size,
            num_kv_heads=memory.num_kv_heads,
            head_dim=memory.head_dim,
            dtype=DTYPE_CODES[memory.dtype],
        )

    def _add_rotary(self, index: int, qk_norm: Tensor | None) -> None:
        qkv = self._buffers.qkv
        args = RotaryArgs(
            pool=self._pool(index),
            qkv=qkv.data_ptr(),
            batch=pointer(self._batch),
            qk_norm=None if qk_norm is None else qk_norm.data_ptr(),
            stride=qkv.stride(0),
            num_heads=self.config.num_heads,
            eps=self.config.rms_norm_eps,
            dtype=_BF16,
        )
        self._angles[self.config.ropes[index]].read_by(args)
        self._program.add("rotary", args)

    def _add_attend(self, index: int) -> None:
        qkv, attended = self._buffers.qkv, self._buffers.attended
        window = self.config.sliding_windows[index]
        args = AttentionArgs(
            pool=self._pool(index),
            query=qkv.data_ptr(),
            out=attended.data_ptr(),
            batch=pointer(self._batch),
            query_stride=qkv.stride(0),
            out_stride=attended.stride(0),
            num_heads=self.config.num_heads,
            window=NO_WINDOW if window is None else window,
            scale=self.config.attention_scale,
            dtype=_BF16,
        )
        self._program.add("attention", args)
