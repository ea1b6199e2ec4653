"""Small models with random weights, made by transformers, and the attention that checks ours against theirs.

Weights are drawn large enough that attention is far from uniform and that a wrong norm, rotation or window moves the
logits by much more than the tolerance.
"""

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf.constants import GGMLQuantizationType
from torch import Tensor
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from evenflow.models.config import ModelConfig
from evenflow.models.llama import LlamaModel

VOCAB_SIZE = 96
TOLERANCE = 1e-3

_SHAPE = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
_CLASSES = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "gemma3_text": (Gemma3TextConfig, Gemma3ForCausalLM),
}
# Windows shorter than the prompts, so that a missing window shows.
_OF_ARCHITECTURE: Mapping[str, Mapping[str, object]] = {
    "llama": {},
    "mistral": {"sliding_window": 5},
    "qwen2": {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
    "qwen3": {"head_dim": 32},
    "gemma3_text": {"head_dim": 32, "sliding_window": 4, "sliding_window_pattern": 2, "query_pre_attn_scalar": 24},
}


def tiny_model(architecture: str, **changes: object) -> PreTrainedModel:
    """fp32, in evaluation mode; the same weights every time."""
    config_class, model_class = _CLASSES[architecture]
    config = config_class(**{**_SHAPE, **_OF_ARCHITECTURE[architecture], **changes}, attn_implementation="eager")
    model = model_class(config)
    assert isinstance(model, PreTrainedModel)
    model.train(False)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            noise = torch.randn(weight.shape, generator=generator)
            if "norm" in name:
                weight.copy_(0.3 * noise + (0.0 if architecture == "gemma3_text" else 1.0))
            else:
                weight.copy_(noise if weight.dim() == 1 else noise * 2.0 / weight.shape[1] ** 0.5)
    return model


class DenseAttention:
    """One request, all of it in this step: no cache, a mask instead."""

    def __init__(self, config: ModelConfig) -> None:
        self._config = config

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, /) -> Tensor:
        count, group = len(q), self._config.num_heads // self._config.num_kv_heads
        k, v = k.repeat_interleave(group, dim=1).float(), v.repeat_interleave(group, dim=1).float()
        distance = torch.arange(count)[:, None] - torch.arange(count)[None, :]
        window = self._config.sliding_windows[layer] or count
        scores = torch.einsum("qhd,khd->hqk", q.float(), k) * self._config.attention_scale
        scores = scores.masked_fill((distance < 0) | (distance >= window), float("-inf"))
        return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1).to(q.dtype)


def logits(model: LlamaModel, token_ids: list[int]) -> Tensor:
    """Of every token."""
    rows = torch.arange(len(token_ids))
    return model.forward(torch.tensor(token_ids), rows, DenseAttention(model.config), rows)


def transformers_logits(model: PreTrainedModel, token_ids: list[int]) -> Tensor:
    with torch.no_grad():
        result: Tensor = model(torch.tensor([token_ids])).logits[0].float()
    return result


def prompt(length: int = 24) -> list[int]:
    return torch.randint(VOCAB_SIZE, (length,), generator=torch.Generator().manual_seed(3)).tolist()


_GGUF_ARCHITECTURES = {
    "llama": (gguf.MODEL_ARCH.LLAMA, "llama"),
    "qwen2": (gguf.MODEL_ARCH.QWEN2, "qwen2"),
    "qwen3": (gguf.MODEL_ARCH.QWEN3, "qwen3"),
    "gemma3_text": (gguf.MODEL_ARCH.GEMMA3, "gemma3"),
}


def write_gguf(
    model: PreTrainedModel, path: Path, kind: GGMLQuantizationType, extra: Mapping[str, np.ndarray] | None = None
) -> None:
    """As llama.cpp's converter writes it: matrices in `kind`, vectors in F32, q and k of llama interleaved."""
    architecture = model.config.model_type
    arch, name = _GGUF_ARCHITECTURES[architecture]
    names = gguf.get_tensor_name_map(arch, model.config.num_hidden_layers)
    writer = gguf.GGUFWriter(path, name)
    write_gguf_config(writer, model)
    for hf_name, weight in model.state_dict().items():
        if hf_name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        values = weight.float().numpy()
        if architecture == "llama" and hf_name.split(".")[-2] in ("q_proj", "k_proj"):
            values = _interleaved(values, model.config.head_dim)
        if architecture == "gemma3_text" and hf_name.endswith("norm.weight"):
            values = values + 1.0
        gguf_name = names.get_name(hf_name, try_suffixes=(".weight", ".bias"))
        assert gguf_name is not None, hf_name
        stored = kind if values.ndim > 1 else GGMLQuantizationType.F32
        writer.add_tensor(gguf_name, gguf.quants.quantize(values, stored), raw_dtype=stored)
    for gguf_name, values in (extra or {}).items():
        writer.add_tensor(gguf_name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_gguf_config(writer: gguf.GGUFWriter, model: PreTrainedModel) -> None:
    config = model.config
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    if config.model_type in ("qwen3", "gemma3_text"):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if config.model_type == "gemma3_text":
        writer.add_sliding_window(config.sliding_window)


def _interleaved(values: np.ndarray, head_dim: int) -> np.ndarray:
    """llama.cpp's `permute`."""
    heads = values.shape[0] // head_dim
    halves = values.reshape(heads, 2, head_dim // 2, *values.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))


def rounded(model: PreTrainedModel, kind: GGMLQuantizationType) -> PreTrainedModel:
    """The same model with its matrices as `kind` would give them back."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                stored = gguf.quants.quantize(weight.numpy(), kind)
                weight.copy_(torch.from_numpy(gguf.quants.dequantize(stored, kind).reshape(weight.shape).copy()))
    return model
