"""What config.json and GGUF metadata say becomes one `ModelConfig`; what they cannot say is refused by file and key."""

import json
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from evenflow.core.errors import ModelError
from evenflow.models.config import FrequencyFactors, LinearScaling, ModelConfig, RopeConfig, YarnScaling
from evenflow.models.source import load_model_config

LLAMA: dict[str, object] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
}
GEMMA = LLAMA | {"model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh", "num_hidden_layers": 7}


def from_json(tmp_path: Path, values: dict[str, object]) -> ModelConfig:
    (tmp_path / "config.json").write_text(json.dumps(values))
    return load_model_config(tmp_path)


def test_a_minimal_llama_config_is_filled_with_the_family_defaults(tmp_path: Path) -> None:
    config = from_json(tmp_path, LLAMA)
    assert (config.head_dim, config.num_kv_heads, config.attention_scale) == (16, 2, 0.25)
    assert config.ropes == (RopeConfig(10_000.0),) * 4
    assert config.sliding_windows == (None,) * 4
    assert not config.tie_word_embeddings
    assert config.embedding_scale is None


def test_gemma_layers_differ_in_window_and_theta(tmp_path: Path) -> None:
    config = from_json(tmp_path, GEMMA | {"sliding_window": 512})
    assert config.sliding_windows == (512,) * 5 + (None, 512)
    assert config.ropes[4:] == (RopeConfig(10_000.0), RopeConfig(1_000_000.0), RopeConfig(10_000.0))
    assert config.head_dim == 256
    assert config.tie_word_embeddings
    assert config.embedding_scale == 8.0


@pytest.mark.parametrize(
    ("model_type", "values", "windows"),
    [
        ("mistral", {}, (4096,) * 4),
        ("mistral", {"sliding_window": None}, (None,) * 4),
        ("llama", {"sliding_window": 9}, (None,) * 4),
        ("qwen2", {"sliding_window": 9}, (None,) * 4),
        ("qwen2", {"sliding_window": 9, "use_sliding_window": True, "max_window_layers": 3}, (None,) * 3 + (9,)),
        (
            "qwen3",
            {
                "sliding_window": 9,
                "use_sliding_window": True,
                "layer_types": ["sliding_attention"] + ["full_attention"] * 3,
            },
            (9, None, None, None),
        ),
    ],
)
def test_windows_follow_the_family(
    model_type: str, values: dict[str, object], windows: tuple[int | None, ...], tmp_path: Path
) -> None:
    assert from_json(tmp_path, LLAMA | {"model_type": model_type} | values).sliding_windows == windows


def test_yarn_sharpens_attention_unless_the_file_says_how_much(tmp_path: Path) -> None:
    yarn = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    derived = from_json(tmp_path, LLAMA | {"rope_scaling": yarn}).ropes[0].scaling
    given = from_json(tmp_path, LLAMA | {"rope_scaling": yarn | {"attention_factor": 1.5}}).ropes[0].scaling
    assert isinstance(derived, YarnScaling)
    assert isinstance(given, YarnScaling)
    assert derived.attention_factor == pytest.approx(1.1386294)
    assert given.attention_factor == 1.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "mamba"}, "architecture 'mamba' is not supported. Supported: llama, mistral"),
        ({"model_type": None}, "'model_type' is missing"),
        ({"model_type": 3}, "'model_type' must be a string, not 3"),
        ({"hidden_size": None}, "'hidden_size' is missing"),
        ({"hidden_size": "64"}, "'hidden_size' must be a whole number, not '64'"),
        ({"hidden_size": True}, "'hidden_size' must be a whole number, not True"),
        ({"hidden_size": 63}, "not a multiple of 4 attention heads"),
        ({"hidden_size": 1 << 40, "head_dim": 16}, "hidden_size must be between 1 and"),
        ({"hidden_size": -64}, "not a multiple of 4 attention heads"),
        ({"head_dim": 15}, "head_dim must be even"),
        ({"num_attention_heads": 0}, "attention heads"),
        ({"num_key_value_heads": 3}, "not a multiple of num_kv_heads"),
        ({"num_hidden_layers": 10**9}, "'num_hidden_layers' must be between 1 and 1024"),
        ({"vocab_size": 0}, "vocab_size must be between 1 and"),
        ({"rms_norm_eps": "x"}, "'rms_norm_eps' must be a number"),
        ({"rms_norm_eps": 5}, "rms_norm_eps must be a small number"),
        ({"rope_theta": 0}, "rope theta must be above 0"),
        ({"rope_theta": float("nan")}, "'rope_theta' must be a number"),
        ({"hidden_act": "relu"}, "activation 'relu' is not supported"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type 'dynamic' is not supported"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling: 'factor' is missing"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, "'factor' must be above 0"),
        ({"rope_scaling": "linear"}, "'rope_scaling' must be an object"),
        (
            {"rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1}},
            "'low_freq_factor' (4.0) must be below",
        ),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "'partial_rotary_factor'"),
        ({"quantization_config": {"quant_method": "gptq"}}, "'quantization_config' is set"),
        ({"model_type": "qwen2", "layer_types": ["full_attention"]}, "'layer_types' must list 4"),
        ({"model_type": "mistral", "sliding_window": 0}, "sliding_window must be at least 1"),
        ({"model_type": "gemma3_text", "final_logit_softcapping": 30.0}, "'final_logit_softcapping' is set"),
    ],
)
def test_a_config_that_cannot_be_run_is_refused_by_file_and_key(
    change: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=r"config\.json") as caught:
        from_json(tmp_path, LLAMA | change)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not valid JSON"),
        (b"[1]", "must hold a JSON object, not [1]"),
        (b"\xff\xfe{}", "not valid JSON"),
        (b"[" * 200_000, "not valid JSON"),
        (b" " * (5 << 20), "is more than the"),
    ],
)
def test_a_config_that_is_no_json_object_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ModelError, match=r"config\.json") as caught:
        load_model_config(tmp_path)
    assert message in str(caught.value)


def test_a_folder_without_config_says_what_a_model_folder_holds(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config.json: no such file. A model folder needs"):
        load_model_config(tmp_path)


def gguf_file(path: Path, values: dict[str, object], tensors: tuple[str, ...] = ()) -> Path:
    writer = gguf.GGUFWriter(path, str(values.get("general.architecture", "llama")))
    for key, value in values.items():
        if isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif key != "general.architecture":
            writer.add_string(key, str(value))
    for name in ("token_embd.weight", *tensors):
        shape = (8,) if name == "rope_freqs.weight" else (100, 64)
        writer.add_tensor(name, np.full(shape, 2.0, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


GGUF: dict[str, object] = {
    "llama.block_count": 4,
    "llama.context_length": 128,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 96,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
}


def test_gguf_metadata_and_tensor_table_make_a_config(tmp_path: Path) -> None:
    config = load_model_config(gguf_file(tmp_path / "m.gguf", GGUF | {"llama.rope.freq_base": 5000.0}))
    assert (config.architecture, config.head_dim, config.vocab_size) == ("llama", 16, 100)
    assert config.ropes == (RopeConfig(5000.0),) * 4
    assert config.tie_word_embeddings
    assert not config.qkv_bias


def test_gguf_rope_scaling_is_read_from_keys_or_from_the_tensor_of_divisors(tmp_path: Path) -> None:
    linear = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}
    yarn = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0}
    yarn |= {"llama.rope.scaling.original_context_length": 32}
    files = {
        LinearScaling(2.0): gguf_file(tmp_path / "linear.gguf", GGUF | linear),
        YarnScaling(4.0, 32, attention_factor=1.138629436111989): gguf_file(tmp_path / "yarn.gguf", GGUF | yarn),
        FrequencyFactors((2.0,) * 8): gguf_file(tmp_path / "factors.gguf", GGUF, ("rope_freqs.weight",)),
    }
    for scaling, path in files.items():
        assert load_model_config(path).ropes[0].scaling == scaling


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"general.architecture": "mamba"}, "architecture 'mamba' is not supported. Supported: llama, qwen2"),
        ({"llama.block_count": "x"}, "'llama.block_count' must be a whole number"),
        ({"llama.block_count": 5000}, "'llama.block_count' must be between 1 and 1024"),
        ({"llama.attention.head_count": 5}, "not a multiple of 5 attention heads"),
        ({"llama.attention.value_length": 8}, "'llama.attention.value_length' is 8"),
        ({"llama.rope.dimension_count": 8}, "'llama.rope.dimension_count' is 8"),
        ({"llama.rope.scaling.type": "longrope", "llama.rope.scaling.factor": 2.0}, "'llama.rope.scaling.type' is"),
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 0.0}, "must be above 0"),
    ],
)
def test_gguf_metadata_that_cannot_be_run_is_refused_by_file_and_key(
    change: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=r"m\.gguf") as caught:
        load_model_config(gguf_file(tmp_path / "m.gguf", GGUF | change))
    assert message in str(caught.value)


def test_reading_configs_and_tokenizers_does_not_import_torch() -> None:
    code = (
        "import sys, evenflow.models.config, evenflow.models.source, evenflow.models.tokenizer, evenflow.models.pull;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
