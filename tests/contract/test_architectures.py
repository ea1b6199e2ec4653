"""Every architecture of the table computes what transformers computes, from every form its weights can be stored in."""

import json
from pathlib import Path

import pytest
import torch
from gguf.constants import GGMLQuantizationType as Kind

from evenflow.models.architectures import ARCHITECTURES
from evenflow.models.loading import load_model
from tiny_models import TOLERANCE, DenseAttention, logits, prompt, rounded, tiny_model, transformers_logits, write_gguf

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
LINEAR = {"rope_type": "linear", "rope_theta": 500.0, "factor": 3.0}

VARIANTS = [
    *((architecture, {}) for architecture in ARCHITECTURES),
    *((architecture, {"tie_word_embeddings": True}) for architecture in ("llama", "qwen2")),
    ("llama", {"attention_bias": True, "mlp_bias": True}),
    ("llama", {"head_dim": 24}),
    ("llama", {"num_key_value_heads": 1}),
    ("llama", {"rope_parameters": LLAMA3}),
    ("llama", {"rope_parameters": YARN}),
    ("llama", {"rope_parameters": LINEAR}),
    ("mistral", {"sliding_window": None}),
    ("qwen2", {"use_sliding_window": False}),
    ("qwen3", {"attention_bias": True}),
    (
        "qwen3",
        {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "sliding_window": 3}
        | {"use_sliding_window": True},
    ),
    ("gemma3_text", {"tie_word_embeddings": False}),
]


def assert_same(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert theirs.abs().max() > 1.0, "weights too small to tell right from wrong"
    torch.testing.assert_close(ours, theirs, atol=TOLERANCE, rtol=0.0)


@pytest.mark.parametrize(("architecture", "changes"), VARIANTS, ids=str)
def test_logits_from_a_folder_are_those_of_transformers(
    architecture: str, changes: dict[str, object], tmp_path: Path
) -> None:
    theirs = tiny_model(architecture, **changes)
    theirs.save_pretrained(tmp_path)
    ours = load_model(tmp_path, "fp32")
    assert ours.config.architecture == architecture
    assert_same(logits(ours, prompt()), transformers_logits(theirs, prompt()))


@pytest.mark.parametrize("architecture", ["llama", "gemma3_text"])
def test_a_sharded_folder_is_the_same_model(architecture: str, tmp_path: Path) -> None:
    theirs = tiny_model(architecture)
    theirs.save_pretrained(tmp_path, max_shard_size="60KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert_same(logits(load_model(tmp_path, "fp32"), prompt()), transformers_logits(theirs, prompt()))


@pytest.mark.parametrize(
    ("architecture", "spelling"),
    [
        ("llama", {"rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 3.0}}),
        ("gemma3_text", {"rope_theta": 5000.0, "rope_local_base_freq": 300.0, "rope_scaling": None}),
    ],
)
def test_rope_settings_are_read_as_older_files_spell_them(
    architecture: str, spelling: dict[str, object], tmp_path: Path
) -> None:
    new_spelling = {
        "llama": LINEAR,
        "gemma3_text": {
            "full_attention": {"rope_type": "default", "rope_theta": 5000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
        },
    }
    theirs = tiny_model(architecture, rope_parameters=new_spelling[architecture])
    theirs.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["rope_parameters"]
    (tmp_path / "config.json").write_text(json.dumps(config | spelling))
    assert_same(logits(load_model(tmp_path, "fp32"), prompt()), transformers_logits(theirs, prompt()))


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gemma3_text"])
def test_logits_from_a_gguf_file_are_those_of_transformers(architecture: str, tmp_path: Path) -> None:
    # What llama.cpp fixes for these families: no window but Gemma's, of which one layer in six is free, and the scale.
    fixed: dict[str, dict[str, object]] = {
        "qwen2": {"use_sliding_window": False},
        "gemma3_text": {"sliding_window_pattern": 6, "num_hidden_layers": 7, "query_pre_attn_scalar": 32},
    }
    theirs = tiny_model(architecture, **fixed.get(architecture, {}))
    write_gguf(theirs, tmp_path / "model.gguf", Kind.F32)
    ours = load_model(tmp_path / "model.gguf", "fp32")
    assert ours.config.architecture == architecture
    assert_same(logits(ours, prompt()), transformers_logits(theirs, prompt()))


@pytest.mark.parametrize(
    "kind", [Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0], ids=lambda k: k.name
)
@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_quantised_gguf_weights_are_what_their_blocks_say(architecture: str, kind: Kind, tmp_path: Path) -> None:
    changes = {"use_sliding_window": False} if architecture == "qwen2" else {"attention_bias": True}
    theirs = tiny_model(architecture, **changes)
    write_gguf(theirs, tmp_path / "model.gguf", kind)
    ours = load_model(tmp_path / "model.gguf", "fp32")
    assert_same(logits(ours, prompt()), transformers_logits(rounded(theirs, kind), prompt()))


def test_llama3_scaling_comes_from_a_gguf_file_as_a_tensor_of_divisors(tmp_path: Path) -> None:
    theirs = tiny_model("llama", rope_parameters=LLAMA3)
    divisors = tiny_model("llama").model.rotary_emb.inv_freq / theirs.model.rotary_emb.inv_freq
    assert len(set(divisors.tolist())) > 1
    write_gguf(theirs, tmp_path / "model.gguf", Kind.F32, {"rope_freqs.weight": divisors.numpy()})
    assert_same(logits(load_model(tmp_path / "model.gguf", "fp32"), prompt()), transformers_logits(theirs, prompt()))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_bf16_stays_as_close_to_fp32_as_transformers_bf16_does(architecture: str, tmp_path: Path) -> None:
    theirs = tiny_model(architecture)
    theirs.save_pretrained(tmp_path)
    exact = transformers_logits(theirs, prompt())
    ours = (logits(load_model(tmp_path, "bf16"), prompt()) - exact).abs().mean()
    reference = (transformers_logits(theirs.bfloat16(), prompt()) - exact).abs().mean()
    assert 0.0 < ours < 1.5 * reference


def test_the_head_runs_for_the_asked_rows_only(tmp_path: Path) -> None:
    tiny_model("llama").save_pretrained(tmp_path)
    model = load_model(tmp_path, "fp32")
    every, tokens = logits(model, prompt()), torch.tensor(prompt())
    rows = torch.tensor([23, 4])
    some = model.forward(tokens, torch.arange(24), DenseAttention(model.config), rows)
    torch.testing.assert_close(some, every[rows])
    none = model.forward(tokens, torch.arange(24), DenseAttention(model.config), torch.tensor([], dtype=torch.int64))
    assert none.shape == (0, 96)
