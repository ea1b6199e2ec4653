"""An engine on a real (tiny) model: how large its KV cache is, and what it says of its memory."""

from pathlib import Path

import pytest

from evenflow.engine.announcement import announcement
from evenflow.engine.api import EngineFacts
from evenflow.engine.build import build_core
from evenflow.engine.config import Dtype, EngineConfig, ExecutorKind, KVDtype
from tiny_models import tiny_model

KV_MEMORY = 1 << 20
LAYERS, KV_HEADS, HEAD_DIM = 3, 2, 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    tiny_model("llama").save_pretrained(path)
    return path


def facts_of(folder: Path, dtype: Dtype, kv_dtype: KVDtype) -> EngineFacts:
    config = EngineConfig(model=str(folder), dtype=dtype, kv_dtype=kv_dtype, threads=1, kv_memory=str(KV_MEMORY))
    _, facts = build_core(config)
    return facts


@pytest.mark.parametrize(
    ("dtype", "kv_dtype", "bytes_per_head"),
    [
        (Dtype.FP32, KVDtype.AUTO, HEAD_DIM * 4),
        (Dtype.FP32, KVDtype.BF16, HEAD_DIM * 2),
        (Dtype.BF16, KVDtype.AUTO, HEAD_DIM * 2),
        (Dtype.BF16, KVDtype.INT8, HEAD_DIM + 4),
    ],
)
def test_the_cache_has_as_many_blocks_as_fit_into_its_memory(
    folder: Path, dtype: Dtype, kv_dtype: KVDtype, bytes_per_head: int
) -> None:
    facts = facts_of(folder, dtype, kv_dtype)
    per_block = LAYERS * 2 * KV_HEADS * bytes_per_head * facts.block_size
    assert facts.num_kv_blocks == KV_MEMORY // per_block
    (cache,) = (use for use in facts.memory if use.name == "KV cache")
    assert cache.num_bytes == facts.num_kv_blocks * per_block


def test_an_engine_says_what_it_took_and_why(folder: Path) -> None:
    facts = facts_of(folder, Dtype.FP32, KVDtype.INT8)
    lines = list(announcement(facts))
    for beginning in ("dtype", "quantize", "kv_dtype", "kernels", "memory: weights", "memory: KV cache"):
        assert sum(line.split("  ")[1].startswith(beginning) for line in lines) == 1, beginning
    (weights,) = (use for use in facts.memory if use.name == "weights")
    assert weights.num_bytes == 4 * sum(parameter.numel() for parameter in tiny_model("llama").parameters())
    (cache,) = (line for line in lines if "memory: KV cache" in line)
    tokens = facts.num_kv_blocks * facts.block_size
    assert f"{facts.num_kv_blocks} blocks x {facts.block_size} tokens = {tokens} tokens, int8" in cache


def test_an_engine_without_a_model_has_no_weights_to_tell_of() -> None:
    _, facts = build_core(EngineConfig(executor=ExecutorKind.SHADOW))
    assert facts.memory == ()
    assert not any("memory" in line for line in announcement(facts))
