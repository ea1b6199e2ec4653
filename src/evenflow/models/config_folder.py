"""`ModelConfig` from the config.json of a Hugging Face folder.

Both spellings are read: rotary settings in `rope_parameters` (transformers 5; per layer type where layers differ) and
in `rope_theta` / `rope_scaling` / `rope_local_base_freq` (before). What config.json leaves out takes transformers'
default for that family, which is in the table of architectures.
"""

import math
from pathlib import Path

from evenflow.core.errors import ModelError
from evenflow.models.architectures import ARCHITECTURES, Activation, Architecture, SlidingLayers
from evenflow.models.config import (
    MAX_LAYERS,
    LinearScaling,
    Llama3Scaling,
    ModelConfig,
    RopeConfig,
    RopeScaling,
    YarnScaling,
)
from evenflow.models.fields import Fields, read_json_object

MAX_CONFIG_BYTES = 4 << 20

_ACTIVATIONS = {
    "silu": Activation.SILU,
    "swish": Activation.SILU,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
    "gelu_new": Activation.GELU_TANH,
}


def read_folder_config(folder: Path) -> ModelConfig:
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(f"{path}: no such file. A model folder needs config.json, *.safetensors and tokenizer.json.")
    fields = read_json_object(path, max_bytes=MAX_CONFIG_BYTES)
    architecture = _architecture(fields)
    _reject_unsupported(fields)
    num_layers = fields.integer("num_hidden_layers")
    if not 0 < num_layers <= MAX_LAYERS:
        raise fields.error(f"'num_hidden_layers' must be between 1 and {MAX_LAYERS}, not {num_layers}.")
    hidden_size, num_heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    head_dim = _head_dim(fields, architecture, hidden_size, num_heads)
    sliding = _sliding_layers(fields, architecture, num_layers)
    window = _window(fields, architecture)
    attention_bias = fields.flag("attention_bias", False)
    return ModelConfig(
        source=str(path),
        architecture=architecture.name,
        hidden_size=hidden_size,
        intermediate_size=fields.integer("intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=fields.integer_or("num_key_value_heads", num_heads),
        head_dim=head_dim,
        vocab_size=fields.integer("vocab_size"),
        max_position_embeddings=fields.integer("max_position_embeddings"),
        rms_norm_eps=fields.number_or("rms_norm_eps", 1e-6),
        ropes=_ropes(fields, architecture, sliding),
        sliding_windows=tuple(window if slides else None for slides in sliding),
        attention_scale=_attention_scale(fields, head_dim),
        activation=_activation(fields, architecture),
        tie_word_embeddings=fields.flag("tie_word_embeddings", architecture.ties_embeddings),
        qkv_bias=attention_bias if architecture.qkv_bias is None else architecture.qkv_bias,
        output_bias=attention_bias and architecture.qkv_bias is None,
        mlp_bias=architecture.mlp_bias and fields.flag("mlp_bias", False),
        qk_norm=architecture.qk_norm,
        post_norms=architecture.post_norms,
        norm_weight_offset=architecture.norm_weight_offset,
        embedding_scale=math.sqrt(hidden_size) if architecture.scales_embedding else None,
    )


def _architecture(fields: Fields) -> Architecture:
    model_type = fields.text("model_type")
    architecture = ARCHITECTURES.get(model_type)
    if architecture is None:
        known = ", ".join(ARCHITECTURES)
        raise fields.error(f"architecture '{model_type}' is not supported. Supported: {known}.")
    return architecture


def _head_dim(fields: Fields, architecture: Architecture, hidden_size: int, num_heads: int) -> int:
    given = fields.optional_integer("head_dim")
    if given is not None:
        return given
    if architecture.default_head_dim is not None:
        return architecture.default_head_dim
    if num_heads < 1 or hidden_size < 1 or hidden_size % num_heads:
        raise fields.error(f"'hidden_size' ({hidden_size}) is not a multiple of {num_heads} attention heads.")
    return hidden_size // num_heads


def _attention_scale(fields: Fields, head_dim: int) -> float:
    scalar = fields.number_or("query_pre_attn_scalar", float(head_dim))
    if scalar <= 0.0:
        raise fields.error(f"attention cannot be scaled by {scalar} ('query_pre_attn_scalar' or 'head_dim').")
    return 1.0 / math.sqrt(scalar)


def _reject_unsupported(fields: Fields) -> None:
    """Settings that change what the model computes and that the forward does not have."""
    for key in ("attn_logit_softcapping", "final_logit_softcapping", "quantization_config"):
        if key in fields:
            raise fields.error(f"'{key}' is set, which is not supported. Use an unquantised copy or a .gguf file.")
    if fields.flag("use_bidirectional_attention", False):
        raise fields.error("'use_bidirectional_attention' is set: not a model that generates text.")


def _activation(fields: Fields, architecture: Architecture) -> Activation:
    name = fields.optional_text("hidden_activation") or fields.optional_text("hidden_act")
    if name is None:
        return architecture.activation
    activation = _ACTIVATIONS.get(name)
    if activation is None:
        raise fields.error(f"activation '{name}' is not supported. Supported: {', '.join(_ACTIVATIONS)}.")
    return activation


def _window(fields: Fields, architecture: Architecture) -> int | None:
    if architecture.sliding_layers is SlidingLayers.FROM_MAX_WINDOW_LAYERS and not fields.flag(
        "use_sliding_window", False
    ):
        return None
    if fields.is_null("sliding_window"):  # said, not left out: no window
        return None
    window = fields.optional_integer("sliding_window")
    return architecture.default_sliding_window if window is None else window


def _sliding_layers(fields: Fields, architecture: Architecture, num_layers: int) -> tuple[bool, ...]:
    listed = fields.texts("layer_types")
    if listed is not None and architecture.sliding_layers is not SlidingLayers.ALL:
        kinds = {"sliding_attention": True, "full_attention": False}
        if len(listed) != num_layers or not set(listed) <= set(kinds):
            raise fields.error(f"'layer_types' must list {num_layers} of {', '.join(kinds)}.")
        return tuple(kinds[kind] for kind in listed)
    match architecture.sliding_layers:
        case SlidingLayers.NONE:
            return (False,) * num_layers
        case SlidingLayers.ALL:
            return (True,) * num_layers
        case SlidingLayers.FROM_MAX_WINDOW_LAYERS:
            first = fields.integer_or("max_window_layers", 28)
            return tuple(layer >= first for layer in range(num_layers))
        case SlidingLayers.ALL_BUT_EVERY_NTH:
            return every_nth_is_full(fields.integer_or("sliding_window_pattern", 6), num_layers)


def every_nth_is_full(pattern: int, num_layers: int) -> tuple[bool, ...]:
    """True for a sliding layer; layers pattern-1, 2*pattern-1, ... see everything."""
    return tuple((layer + 1) % max(pattern, 1) != 0 for layer in range(num_layers))


def _ropes(fields: Fields, architecture: Architecture, sliding: tuple[bool, ...]) -> tuple[RopeConfig, ...]:
    parameters = fields.optional_object("rope_parameters")
    local_theta = architecture.default_local_rope_theta
    if parameters is not None and ("full_attention" in parameters or "sliding_attention" in parameters):
        full = _rope(fields, parameters.optional_object("full_attention"), architecture.default_rope_theta)
        local = _rope(fields, parameters.optional_object("sliding_attention"), local_theta or full.theta)
        return tuple(local if slides else full for slides in sliding)
    full = _rope(fields, parameters or fields.optional_object("rope_scaling"), architecture.default_rope_theta)
    if local_theta is None:
        return (full,) * len(sliding)
    local = RopeConfig(fields.number_or("rope_local_base_freq", local_theta))
    return tuple(local if slides else full for slides in sliding)


def _rope(fields: Fields, parameters: Fields | None, default_theta: float) -> RopeConfig:
    theta = fields.number_or("rope_theta", default_theta)
    if parameters is None:
        return RopeConfig(theta)
    theta = parameters.number_or("rope_theta", theta)
    for owner in (fields, parameters):
        if owner.number_or("partial_rotary_factor", 1.0) != 1.0:
            raise owner.error("'partial_rotary_factor' other than 1 is not supported.")
    return RopeConfig(theta, _scaling(fields, parameters))


def _scaling(fields: Fields, parameters: Fields) -> RopeScaling | None:
    kind = parameters.optional_text("rope_type") or parameters.optional_text("type") or "default"
    if kind == "default":
        return None
    supported = ("default", "linear", "llama3", "yarn")
    if kind not in supported:
        raise parameters.error(f"rope_type '{kind}' is not supported. Supported: {', '.join(supported)}.")
    factor = parameters.number("factor")
    if factor <= 0.0:
        raise parameters.error(f"'factor' must be above 0, not {factor}.")
    if kind == "linear":
        return LinearScaling(factor)
    original = parameters.integer_or("original_max_position_embeddings", fields.integer("max_position_embeddings"))
    if original < 1:
        raise parameters.error(f"'original_max_position_embeddings' must be at least 1, not {original}.")
    if kind == "llama3":
        low, high = parameters.number("low_freq_factor"), parameters.number("high_freq_factor")
        if not 0.0 < low < high:
            raise parameters.error(f"'low_freq_factor' ({low}) must be below 'high_freq_factor' ({high}).")
        return Llama3Scaling(factor, low, high, original)
    return YarnScaling(
        factor=factor,
        original_max_position_embeddings=original,
        attention_factor=_yarn_attention_factor(parameters, factor),
        beta_fast=parameters.optional_number("beta_fast") or 32.0,
        beta_slow=parameters.optional_number("beta_slow") or 1.0,
        truncate=parameters.flag("truncate", True),
    )


def _yarn_attention_factor(parameters: Fields, factor: float) -> float:
    given = parameters.optional_number("attention_factor")
    if given is not None:
        return given
    mscale, mscale_all = parameters.optional_number("mscale"), parameters.optional_number("mscale_all_dim")
    if mscale and mscale_all:
        return yarn_mscale(factor, mscale) / yarn_mscale(factor, mscale_all)
    return yarn_mscale(factor)


def yarn_mscale(factor: float, mscale: float = 1.0) -> float:
    """The paper's temperature: attention sharpens as the context stretches."""
    return 1.0 if factor <= 1.0 else 0.1 * mscale * math.log(factor) + 1.0
