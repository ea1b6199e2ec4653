"""The floor under a step: products alone, for as many tokens and sampled rows as a step had."""

from pathlib import Path

import pytest

from evenflow.bench import floor
from evenflow.bench.floor import ProductFloor
from evenflow.core.errors import ConfigError
from evenflow.engine.config import Dtype, EngineConfig, Quantize
from evenflow.kernels.native import load_kernels
from tiny_models import tiny_model

NATIVE = pytest.mark.skipif(load_kernels().table is None, reason="only products of the native kernels are timed")
LAYERS, PRODUCTS_PER_LAYER = 3, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    tiny_model("llama").save_pretrained(path)
    return path


def config(folder: Path, quantize: Quantize, dtype: Dtype = Dtype.BF16) -> EngineConfig:
    return EngineConfig(model=str(folder), dtype=dtype, quantize=quantize, max_num_batched_tokens=64)


class CountingClock:
    """One second passes between any two looks."""

    def __init__(self) -> None:
        self.looks = 0

    def perf_counter(self) -> float:
        self.looks += 1
        return float(self.looks)


@NATIVE
@pytest.mark.parametrize("quantize", Quantize)
def test_every_product_of_a_step_is_timed_and_nothing_else(
    folder: Path, quantize: Quantize, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(floor, "time", CountingClock())
    products = ProductFloor(config(folder, quantize))
    assert products.seconds([(64, 2)]) == LAYERS * PRODUCTS_PER_LAYER + 1
    assert products.seconds([(64, 0)]) == LAYERS * PRODUCTS_PER_LAYER, "no head where nobody samples"
    assert products.seconds([(1, 1)] * 3) == 3 * (LAYERS * PRODUCTS_PER_LAYER + 1)
    assert products.seconds([]) == 0.0


@NATIVE
def test_time_passes(folder: Path) -> None:
    assert ProductFloor(config(folder, Quantize.INT8)).seconds([(64, 2), (7, 7)]) > 0.0


def test_a_model_that_runs_in_torch_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="int8"):
        ProductFloor(config(folder, Quantize.NONE, Dtype.FP32))
