"""The profile of a step: every part is there, and nothing is counted twice."""

from pathlib import Path

import pytest

from evenflow.bench.profile import PARTS, Scene, measure
from evenflow.core.errors import ConfigError
from evenflow.engine.config import Dtype, EngineConfig, Quantize
from evenflow.kernels.native import load_kernels
from tiny_models import tiny_model

NATIVE = pytest.mark.skipif(load_kernels().table is None, reason="a profile is one of kernels")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    tiny_model("llama").save_pretrained(path)
    return path


def config(folder: Path, quantize: Quantize, kv_memory: str = "4MiB") -> EngineConfig:
    return EngineConfig(model=str(folder), dtype=Dtype.BF16, quantize=quantize, threads=1, kv_memory=kv_memory)


@NATIVE
@pytest.mark.parametrize("quantize", [Quantize.NONE, Quantize.INT8])
@pytest.mark.parametrize("prefill", [0, 50])
def test_every_part_of_a_step_is_seen(folder: Path, quantize: Quantize, prefill: int) -> None:
    profile = measure(config(folder, quantize), Scene(running=3, prefill=prefill, context=40, steps=5))
    # Gates that are whole panels are a part of their product.
    apart = {"gates, with quantisation"} | ({"quantisation"} if quantize is Quantize.NONE else set())
    expected = [part for part in PARTS if part not in apart]
    assert list(profile.parts_ms) == expected
    assert all(value > 0.0 for value in profile.parts_ms.values())
    assert profile.step_ms == pytest.approx(sum(profile.parts_ms.values()))
    assert profile.plain_step_ms > 0.0
    assert profile.settings["quantize"].split()[0] == quantize.value


@NATIVE
def test_a_scene_that_does_not_fit_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="does not fit"):
        measure(config(folder, Quantize.INT8, kv_memory="40KiB"), Scene(running=5, prefill=0, context=50, steps=5))


def test_a_model_that_runs_in_torch_is_refused(folder: Path) -> None:
    fp32 = EngineConfig(model=str(folder), dtype=Dtype.FP32, threads=1, kv_memory="4MiB")
    with pytest.raises(ConfigError, match="int8"):
        measure(fp32, Scene(running=2, prefill=0, context=10, steps=2))
