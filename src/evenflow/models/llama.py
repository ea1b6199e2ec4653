"""The decoder, for a flat batch: T tokens of any requests side by side, each with its position.

    hidden = embed(token_ids)
    per layer:   hidden += [post_norm] attention(rotate([qk_norm] qkv(norm(hidden))))
                 hidden += [post_norm] down(activation(gate) * up)     of norm(hidden)
    logits = head(norm(hidden[logit_rows]))

Requests meet only in `attention`, which the executor gives: it knows which token belongs to which request and where the
keys and values of earlier tokens are. q, k and v are one product, gate and up another.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from evenflow.models.config import ModelConfig, RopeConfig
from evenflow.models.layers import gated, rms_norm
from evenflow.models.linear import Linear
from evenflow.models.rope import RotaryEmbedding, rotate


class Attention(Protocol):
    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, /) -> Tensor:
        """Store this step's k and v, then let each token attend to its own request up to itself.

        q is [T, num_heads, head_dim], k and v [T, num_kv_heads, head_dim], after rope; the result is
        [T, num_heads * head_dim]. Scale and windows are the config's `attention_scale` and `sliding_windows[layer]`.
        v, and without rotation k, may be a view that later layers overwrite: copy what is kept.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class DecoderLayer:
    """Weights of one layer. Norm weights are float32; `qk_norm` is [num_heads + num_kv_heads, head_dim]."""

    attention_norm: Tensor
    qkv: Linear
    qk_norm: Tensor | None
    output: Linear
    attention_post_norm: Tensor | None
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear
    mlp_post_norm: Tensor | None

    @property
    def tensors(self) -> Iterator[Tensor | None]:
        yield from (self.attention_norm, self.qk_norm, self.attention_post_norm, self.mlp_norm, self.mlp_post_norm)
        for linear in (self.qkv, self.output, self.gate_up, self.down):
            yield from linear.tensors


class LlamaModel:
    """Inference only; nothing of it changes after construction, so steps are independent."""

    def __init__(
        self,
        config: ModelConfig,
        embedding: Tensor,
        layers: Sequence[DecoderLayer],
        norm: Tensor,
        head: Linear,
        dtype: torch.dtype | None = None,
    ) -> None:
        """`dtype` is that of activations; the embedding's, if not given."""
        self.config = config
        self.dtype = embedding.dtype if dtype is None else dtype
        self.embedding = embedding
        self.layers = tuple(layers)
        self.norm = norm
        self.head = head
        # Rounded like transformers: Gemma's sqrt(hidden_size) is a number of the model's dtype.
        scale = config.embedding_scale
        self._embedding_scale = None if scale is None else torch.tensor(scale, dtype=self.dtype, device=self.device)
        self._ropes: dict[RopeConfig, RotaryEmbedding] = {
            rope: RotaryEmbedding(rope, config.head_dim, self.device) for rope in config.ropes
        }

    @property
    def embedding_scale(self) -> float:
        return 1.0 if self._embedding_scale is None else float(self._embedding_scale)

    @property
    def weight_bytes(self) -> int:
        """Of memory. A head that is the embedding counts once."""
        layers = chain.from_iterable(layer.tensors for layer in self.layers)
        kept = {id(tensor): tensor for tensor in (self.embedding, self.norm, *self.head.tensors, *layers)}
        return sum(tensor.numel() * tensor.element_size() for tensor in kept.values() if tensor is not None)

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @torch.inference_mode()
    def forward(self, token_ids: Tensor, positions: Tensor, attention: Attention, logit_rows: Tensor) -> Tensor:
        """Logits, float32 [len(logit_rows), vocab_size], of the tokens at `logit_rows` only."""
        return self.logits(self.hidden(token_ids, positions, attention).index_select(0, logit_rows)).float()

    def embed(self, token_ids: Tensor) -> Tensor:
        """[T, hidden_size], scaled where the architecture does so."""
        hidden = functional.embedding(token_ids, self.embedding).to(self.dtype)
        return hidden if self._embedding_scale is None else hidden * self._embedding_scale

    @torch.inference_mode()
    def hidden(self, token_ids: Tensor, positions: Tensor, attention: Attention) -> Tensor:
        """What the last layer leaves, [T, hidden_size]."""
        hidden = self.embed(token_ids)
        angles = {config: rope.angles(positions) for config, rope in self._ropes.items()}
        for index, layer in enumerate(self.layers):
            hidden = self._attend(index, layer, hidden, angles[self.config.ropes[index]], attention)
            hidden = self._mlp(layer, hidden)
        return hidden

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """[R, vocab_size], of the activations' dtype, for any rows of `hidden`."""
        return self.head(rms_norm(hidden, self.norm, self.config.rms_norm_eps))

    def _attend(
        self, index: int, layer: DecoderLayer, hidden: Tensor, angles: tuple[Tensor, Tensor], attention: Attention
    ) -> Tensor:
        config = self.config
        qkv = layer.qkv(rms_norm(hidden, layer.attention_norm, config.rms_norm_eps))
        heads = qkv.view(-1, config.num_heads + 2 * config.num_kv_heads, config.head_dim)
        qk, v = heads[:, : -config.num_kv_heads], heads[:, -config.num_kv_heads :]
        qk = qk.float()
        if layer.qk_norm is not None:
            qk = rms_norm(qk, layer.qk_norm, config.rms_norm_eps)
        qk = rotate(qk, angles, self.dtype)
        attended = attention(index, qk[:, : config.num_heads], qk[:, config.num_heads :], v)
        return hidden + self._post_norm(layer.output(attended), layer.attention_post_norm)

    def _mlp(self, layer: DecoderLayer, hidden: Tensor) -> Tensor:
        gate_up = layer.gate_up(rms_norm(hidden, layer.mlp_norm, self.config.rms_norm_eps))
        projected = layer.down(gated(gate_up, self.config.activation))
        return hidden + self._post_norm(projected, layer.mlp_post_norm)

    def _post_norm(self, rows: Tensor, weight: Tensor | None) -> Tensor:
        return rows if weight is None else rms_norm(rows, weight, self.config.rms_norm_eps)
