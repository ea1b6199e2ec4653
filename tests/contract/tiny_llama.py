"""A Llama of two layers with random weights: real attention over real KV blocks, in a millisecond.

`speak` is the reference: no cache, no batch, no scheduler; the whole text is run again for every token.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from evenflow.models.architectures import Activation
from evenflow.models.config import ModelConfig, RopeConfig
from evenflow.models.linear import Linear, pack
from evenflow.models.llama import DecoderLayer, LlamaModel

VOCAB_SIZE = 300

CONFIG = ModelConfig(
    source="a test",
    architecture="llama",
    hidden_size=32,
    intermediate_size=48,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    vocab_size=VOCAB_SIZE,
    max_position_embeddings=4096,
    rms_norm_eps=1e-5,
    ropes=(RopeConfig(10_000.0),) * 2,
    sliding_windows=(None, None),
    attention_scale=0.25,
    activation=Activation.SILU,
    tie_word_embeddings=False,
)


def tiny_llama(pack: Callable[[Tensor], Linear] = pack, dtype: torch.dtype = torch.float32) -> LlamaModel:
    """`dtype` is the embedding's; the matrices are as `pack` makes them of fp32."""
    generator = torch.Generator().manual_seed(0)

    def weight(rows: int, columns: int) -> Tensor:
        return torch.randn((rows, columns), generator=generator).mul(1.5 / columns**0.5)

    def layer() -> DecoderLayer:
        return DecoderLayer(
            attention_norm=torch.ones(32),
            qkv=pack(weight(16 * 8, 32)),
            qk_norm=None,
            output=pack(weight(32, 64)),
            attention_post_norm=None,
            mlp_norm=torch.ones(32),
            gate_up=pack(weight(96, 32)),
            down=pack(weight(32, 48)),
            mlp_post_norm=None,
        )

    embedding = (weight(VOCAB_SIZE, 32) * 3).to(dtype)
    return LlamaModel(CONFIG, embedding, [layer(), layer()], torch.ones(32), pack(weight(VOCAB_SIZE, 32) * 3))


class _WholeText:
    """Attention of one text that is all there."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, /) -> Tensor:
        q, k, v = (rows.transpose(0, 1)[None] for rows in (q, k, v))
        attended = scaled_dot_product_attention(q, k, v, is_causal=True, scale=CONFIG.attention_scale, enable_gqa=True)
        return attended[0].transpose(0, 1).flatten(1)


def logits_of(model: LlamaModel, token_ids: Sequence[int]) -> Tensor:
    """[len(token_ids), vocab_size]"""
    positions = torch.arange(len(token_ids))
    return model.forward(torch.tensor(token_ids), positions, _WholeText(), positions)


def speak(model: LlamaModel, prompt: Sequence[int], count: int) -> list[int]:
    """The likeliest continuation."""
    text = list(prompt)
    for _ in range(count):
        text.append(int(logits_of(model, text)[-1].argmax()))
    return text[len(prompt) :]
