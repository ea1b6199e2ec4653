"""`ModelConfig` from GGUF metadata.

What the keys leave out is what llama.cpp hard-codes for the family (Gemma 3: the local theta, one full layer in six),
or is read from the tensor table (vocabulary size, tied embeddings, biases). Llama 3's rope scaling comes as a tensor of
divisors, one per frequency. Norm weights already include the 1 that Gemma's norms add.
"""

import math

from evenflow.models.architectures import GGUF_ARCHITECTURES, Architecture, SlidingLayers
from evenflow.models.config import (
    MAX_LAYERS,
    FrequencyFactors,
    LinearScaling,
    ModelConfig,
    RopeConfig,
    RopeScaling,
    YarnScaling,
)
from evenflow.models.config_folder import every_nth_is_full, yarn_mscale
from evenflow.models.gguf_file import GGUFFile

GEMMA3_27B_LAYERS = 62
"""The one Gemma 3 whose attention scale is not head_dim**-0.5."""


def gguf_architecture(file: GGUFFile) -> Architecture:
    name = file.metadata.text("general.architecture")
    architecture = GGUF_ARCHITECTURES.get(name)
    if architecture is None:
        known = ", ".join(GGUF_ARCHITECTURES)
        raise file.metadata.error(f"architecture '{name}' is not supported. Supported: {known}.")
    return architecture


def read_gguf_config(file: GGUFFile) -> ModelConfig:
    architecture = gguf_architecture(file)
    metadata, prefix = file.metadata, architecture.gguf_name
    num_layers = metadata.integer(f"{prefix}.block_count")
    if not 0 < num_layers <= MAX_LAYERS:
        raise metadata.error(f"'{prefix}.block_count' must be between 1 and {MAX_LAYERS}, not {num_layers}.")
    hidden_size = metadata.integer(f"{prefix}.embedding_length")
    num_heads = metadata.integer(f"{prefix}.attention.head_count")
    head_dim = _head_dim(file, architecture, hidden_size, num_heads)
    sliding = _sliding_layers(file, architecture, num_layers)
    window = metadata.optional_integer(f"{prefix}.attention.sliding_window")
    return ModelConfig(
        source=str(file.path),
        architecture=architecture.name,
        hidden_size=hidden_size,
        intermediate_size=metadata.integer(f"{prefix}.feed_forward_length"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=metadata.integer_or(f"{prefix}.attention.head_count_kv", num_heads),
        head_dim=head_dim,
        vocab_size=file.tensor("token_embd.weight").shape[0],
        max_position_embeddings=metadata.integer(f"{prefix}.context_length"),
        rms_norm_eps=metadata.number(f"{prefix}.attention.layer_norm_rms_epsilon"),
        ropes=_ropes(file, architecture, sliding),
        sliding_windows=tuple(window if slides else None for slides in sliding),
        attention_scale=_attention_scale(architecture, num_layers, hidden_size, num_heads, head_dim),
        activation=architecture.activation,
        tie_word_embeddings="output.weight" not in file.tensors,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        output_bias="blk.0.attn_output.bias" in file.tensors,
        mlp_bias="blk.0.ffn_down.bias" in file.tensors,
        qk_norm=architecture.qk_norm,
        post_norms=architecture.post_norms,
        norm_weight_offset=0.0,
        embedding_scale=math.sqrt(hidden_size) if architecture.scales_embedding else None,
    )


def _head_dim(file: GGUFFile, architecture: Architecture, hidden_size: int, num_heads: int) -> int:
    metadata, prefix = file.metadata, architecture.gguf_name
    head_dim = metadata.optional_integer(f"{prefix}.attention.key_length")
    if head_dim is None:
        if num_heads < 1 or hidden_size < 1 or hidden_size % num_heads:
            raise metadata.error(f"embedding_length ({hidden_size}) is not a multiple of {num_heads} attention heads.")
        head_dim = hidden_size // num_heads
    if head_dim < 1:
        raise metadata.error(f"'{prefix}.attention.key_length' must be at least 1, not {head_dim}.")
    for key, what in (("attention.value_length", "value heads"), ("rope.dimension_count", "rotated dimensions")):
        size = metadata.optional_integer(f"{prefix}.{key}")
        if size is not None and size != head_dim:
            raise metadata.error(f"'{prefix}.{key}' is {size}, but {what} other than {head_dim} are not supported.")
    return head_dim


def _sliding_layers(file: GGUFFile, architecture: Architecture, num_layers: int) -> tuple[bool, ...]:
    if architecture.sliding_layers is not SlidingLayers.ALL_BUT_EVERY_NTH:
        return (False,) * num_layers  # llama.cpp runs the other families without windows
    return every_nth_is_full(6, num_layers)


def _attention_scale(
    architecture: Architecture, num_layers: int, hidden_size: int, num_heads: int, head_dim: int
) -> float:
    if architecture.name == "gemma3_text" and num_layers == GEMMA3_27B_LAYERS:
        return math.sqrt(num_heads / hidden_size)
    return 1.0 / math.sqrt(head_dim)


def _ropes(file: GGUFFile, architecture: Architecture, sliding: tuple[bool, ...]) -> tuple[RopeConfig, ...]:
    metadata, prefix = file.metadata, architecture.gguf_name
    theta = metadata.number_or(f"{prefix}.rope.freq_base", architecture.default_rope_theta)
    full = RopeConfig(theta, _scaling(file, architecture))
    local_theta = architecture.default_local_rope_theta
    if local_theta is None:
        return (full,) * len(sliding)
    local = RopeConfig(metadata.number_or(f"{prefix}.rope.freq_base_swa", local_theta))
    return tuple(local if slides else full for slides in sliding)


def _scaling(file: GGUFFile, architecture: Architecture) -> RopeScaling | None:
    metadata, prefix = file.metadata, f"{architecture.gguf_name}.rope.scaling"
    if "rope_freqs.weight" in file.tensors:
        factors = file.rows(file.tensor("rope_freqs.weight"), 0, 1)[0]
        return FrequencyFactors(tuple(float(factor) for factor in factors))
    kind = metadata.optional_text(f"{prefix}.type") or "none"
    if kind == "none":
        return None
    factor = metadata.number(f"{prefix}.factor")
    if factor <= 0.0:
        raise metadata.error(f"'{prefix}.factor' must be above 0, not {factor}.")
    if kind == "linear":
        return LinearScaling(factor)
    if kind == "yarn":
        original = metadata.integer(f"{prefix}.original_context_length")
        return YarnScaling(factor, max(original, 1), attention_factor=yarn_mscale(factor))
    raise metadata.error(f"'{prefix}.type' is '{kind}'. Supported: none, linear, yarn.")
