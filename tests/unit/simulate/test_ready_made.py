"""Costs that nobody measured here: published timings, data sheets, and the ones that come with evenflow."""

from pathlib import Path

import pytest

from evenflow.core.errors import ConfigError
from evenflow.models.config_folder import read_folder_config
from evenflow.simulate.catalogue import find_cost, ready_made
from evenflow.simulate.cost import Kind, StepFeatures
from evenflow.simulate.cost_file import CostError
from evenflow.simulate.published import cost_of_timings, read_timings
from evenflow.simulate.roofline import DEVICES, num_parameters, roofline_cost

HEADER = "model,hardware,prompt_size,batch_size,token_size,prompt_time,token_time,tensor_parallel\n"
LLAMA_8B = """{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
 "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
 "vocab_size": 128256, "max_position_embeddings": 8192, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
 "hidden_act": "silu", "tie_word_embeddings": false}"""


def timing(prompt: int, batch: int, *, prompt_ms: float | None = None) -> str:
    spent = 20.0 + 0.05 * prompt * batch if prompt_ms is None else prompt_ms
    return f"m,gpu,{prompt},{batch},64,{spent},{18.0 + 0.1 * batch},2\n"


def test_published_timings_are_fitted(tmp_path: Path) -> None:
    path = tmp_path / "timings.csv"
    rows = [timing(prompt, batch) for prompt in (128, 256, 512, 1024) for batch in (1, 2, 4, 8, 16, 32, 64)]
    path.write_text(HEADER + "".join(rows))
    ((setup, samples),) = read_timings(path).items()
    cost = cost_of_timings(setup, samples)
    assert setup.name == "gpu-x2-m"
    assert cost.seconds(StepFeatures(2048, 0, 4 * 512 * 513 // 2, 0, 4)) == pytest.approx(0.1224, rel=0.1)
    assert cost.seconds(StepFeatures(0, 16, 0, 16 * 500, 16)) == pytest.approx(0.0196, rel=0.1)
    assert cost.identity.kind is Kind.PUBLISHED


def test_a_batch_that_takes_less_than_a_smaller_one_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "timings.csv"
    path.write_text(HEADER + timing(512, 32) + timing(512, 64, prompt_ms=100.0))
    ((_, samples),) = read_timings(path).items()
    assert {sample.features.num_scheduled for sample in samples} == {32}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "has no column model"),
        (HEADER + "m,gpu,1,1,x,1,1,2\n", "row 1: a number"),
        (HEADER + "m,gpu,0,1,1,1,1,2\n", "row 1: sizes"),
        (HEADER + "m,gpu,1,1,1,nan,1,2\n", "row 1: sizes"),
        (HEADER + "m,../gpu,1,1,1,1,1,2\n", "row 1: model and hardware must be names"),
        (HEADER + ",gpu,1,1,1,1,1,2\n", "row 1: model and hardware must be names"),
        (HEADER + "m,gpu,1,1,1,1,1,0\n", "row 1: tensor_parallel must be between 1"),
        (HEADER + "m,gpu,1,1,99999999999,1,1,2\n", "sizes at most"),
    ],
)
def test_wrong_timings_are_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "timings.csv"
    path.write_text(text)
    with pytest.raises(CostError, match=said):
        read_timings(path)


def test_a_roofline_is_what_the_data_sheets_say(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(LLAMA_8B)
    model = read_folder_config(tmp_path)
    assert num_parameters(model) == pytest.approx(8.03e9, rel=0.01)
    cost = roofline_cost("h100-80gb", model)
    # One stream reads 16 GB at 80 % of 3.35 TB/s: 6 ms, and 2 ms besides.
    assert cost.seconds(StepFeatures(0, 1, 0, 1, 1)) == pytest.approx(0.008, rel=0.02)
    assert roofline_cost("h100-80gb", model, devices=2).weight_seconds == pytest.approx(cost.weight_seconds / 2)
    assert cost.kv_tokens is not None
    assert cost.kv_tokens * 131_072 < 80e9 - 16e9
    assert "not measured" in cost.notes[0]


def test_a_model_too_large_or_a_device_unknown_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(LLAMA_8B.replace('"num_hidden_layers": 32', '"num_hidden_layers": 320'))
    model = read_folder_config(tmp_path)
    with pytest.raises(CostError, match="use more devices"):
        roofline_cost("l4-24gb", model)
    with pytest.raises(ConfigError, match=next(iter(DEVICES))):
        roofline_cost("abacus", model)


def test_what_comes_with_evenflow_can_be_used_and_says_how_good_it_is() -> None:
    names = ready_made()
    assert len(names) == 12
    for name in names:
        cost = find_cost(name)
        (quality,) = cost.qualities
        assert quality.mape is not None
        assert quality.mape < 0.15
        assert cost.notes
        small, large = StepFeatures(0, 1, 0, 1000, 1), StepFeatures(0, 32, 0, 32_000, 32)
        assert 0.005 < cost.seconds(small) < cost.seconds(large) < 0.2


def test_a_name_that_is_none_is_answered_with_the_nearest() -> None:
    with pytest.raises(CostError, match="did you mean h100-80gb-x8-llama2-70b"):
        find_cost("h100-x8-llama2-70b")
    with pytest.raises(CostError, match="cannot read the cost file"):
        find_cost("nowhere.json")
