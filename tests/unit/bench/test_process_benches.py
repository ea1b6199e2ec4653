"""The benches of whole processes: they measure what they say, on a server without a model and on a tiny model."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from evenflow.bench import memory, startup
from evenflow.engine.config import Dtype, EngineConfig, KVDtype
from evenflow.engine.memory import resident_memory
from evenflow.models.source import resolve_model
from tiny_models import tiny_model


class ByteTokenizer:
    def token_bytes(self, token_id: int, /) -> bytes:
        return bytes([token_id])

    def is_special(self, token_id: int, /) -> bool:
        return False

    def decode(self, token_ids: Sequence[int], /, *, skip_special_tokens: bool = True) -> str:
        return bytes(token_ids).decode(errors="replace")


PROC = pytest.mark.skipif(resident_memory() is None, reason="the system does not tell what a process has in memory")


@PROC
@pytest.mark.model
@pytest.mark.slow
def test_a_start_is_timed_to_its_first_token() -> None:
    result = startup.measure(resolve_model("smollm2-135m"), runs=1, serve_arguments=["--executor", "shadow"])
    (start,) = result.starts
    assert 0.0 < start.ready_seconds < start.first_token_seconds
    assert result.first_token_seconds == start.first_token_seconds
    assert start.front_bytes is not None
    assert start.engine_bytes is not None
    assert start.engine_bytes > 10 << 20


@PROC
@pytest.mark.slow
def test_a_cache_that_is_filled_is_in_memory(tmp_path: Path) -> None:
    tiny_model("llama").save_pretrained(tmp_path)
    config = EngineConfig(
        model=str(tmp_path), dtype=Dtype.BF16, kv_dtype=KVDtype.INT8, threads=1, kv_memory="24MB", max_num_seqs=1024
    )
    cost = memory.measure(config, ByteTokenizer())
    assert cost.settings["kv_dtype"].startswith("int8")
    assert 23e6 < cost.kv_cache <= 24e6
    assert cost.filled - cost.loaded > 0.9 * cost.kv_cache
    assert cost.filled_limit - cost.loaded_limit == pytest.approx(memory.LIMIT_FACTOR * cost.kv_cache, abs=1)
