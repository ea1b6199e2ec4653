"""Host memory for the KV cache: how much is asked for, what it comes to, and what cannot work."""

import pytest

from evenflow.core.errors import ConfigError
from evenflow.engine.build import build_core
from evenflow.engine.config import Capabilities, EngineConfig, ExecutorKind, ResolvedEngine, resolve

KIB, MIB = 2**10, 2**20
MACHINE = Capabilities(max_position_embeddings=4096, vocab_size=100, bytes_per_block=KIB, free_memory=4 * MIB)


def resolved(host_kv_memory: str, *, kv_memory: str = "1MiB") -> ResolvedEngine:
    return resolve(EngineConfig(kv_memory=kv_memory, host_kv_memory=host_kv_memory), MACHINE)


@pytest.mark.parametrize(("asked", "blocks"), [("0", 0), ("1KiB", 1), ("2047", 1), ("3MiB", 3072)])
def test_host_memory_is_whole_blocks(asked: str, blocks: int) -> None:
    engine = resolved(asked)
    assert (engine.num_host_blocks, engine.host_kv_bytes) == (blocks, blocks * KIB)
    assert engine.num_blocks == 1024, "the KV cache proper does not depend on it"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("4MiB", r"host_kv_memory 4MiB does not fit: 3 MiB of memory is free beside the weights and the KV cache"),
        ("1000", r"host_kv_memory 1000 holds no KV block: one of 32 tokens takes 1 KiB"),
        ("much", r"host_kv_memory must be a size such as 512MB or 2GiB"),
        ("-1", r"host_kv_memory must be a size"),
        ("0MB", r"host_kv_memory must be more than nothing"),
    ],
)
def test_what_cannot_work_is_refused(asked: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolved(asked)


def test_swap_needs_somewhere_to_swap_to() -> None:
    with pytest.raises(ConfigError, match="set host_kv_memory"):
        build_core(EngineConfig(executor=ExecutorKind.SHADOW, policy_set=("preemption=swap",)))
