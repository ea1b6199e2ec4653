"""Puts an engine together from a configuration: executor, KV bookkeeping, scheduler, core.

Runs where the model lives (the engine process, or the thread of `LLM`); importing this module does not import torch,
building a torch engine does.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

from evenflow.core.config import SchedulerConfig
from evenflow.core.events import Event
from evenflow.core.kv_cache import KVCacheManager
from evenflow.core.policy.spec import PolicySpec
from evenflow.core.ports import Clock, Executor
from evenflow.core.scheduler import Scheduler
from evenflow.engine.api import EngineFacts, MemoryUse
from evenflow.engine.clock import MonotonicClock
from evenflow.engine.config import (
    Capabilities,
    EngineConfig,
    ExecutorKind,
    ResolvedEngine,
    resolve,
)
from evenflow.engine.core import EngineCore
from evenflow.engine.memory import available_memory, resident_memory
from evenflow.executors.shadow import ShadowExecutor

_SHADOW = Capabilities(max_position_embeddings=4096, vocab_size=256, bytes_per_block=128, free_memory=1 << 22)


class LoadedModel(Protocol):
    """What executors/torch/build.py returns: a model in memory that can still be asked what it would take to run it."""

    @property
    def max_position_embeddings(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def description(self) -> tuple[tuple[str, str], ...]:
        """Printable names and values, for people."""
        ...

    @property
    def weight_bytes(self) -> int: ...
    @property
    def kv_dtype(self) -> str: ...

    def bytes_per_block(self, block_size: int) -> int: ...
    def executor(
        self,
        *,
        num_blocks: int,
        block_size: int,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_model_len: int,
        num_host_blocks: int,
    ) -> Executor: ...


@dataclass(frozen=True, slots=True)
class _Built:
    """`weight_bytes` and `kv_dtype` are None where there is no model."""

    resolved: ResolvedEngine
    executor: Executor
    description: tuple[tuple[str, str], ...]
    weight_bytes: int | None = None
    kv_dtype: str | None = None


def build_core(config: EngineConfig, *, keeps_log: bool = True) -> tuple[EngineCore, EngineFacts]:
    """Raises `ModelError` or `ConfigError`; takes as long as loading the model does. `keeps_log`: see EngineCore."""
    built = _BUILDERS[config.executor](config)
    core = assemble(built.resolved, built.executor, paranoid=config.paranoid, keeps_log=keeps_log)
    facts = _facts(built)
    core.announce(facts.settings)
    return core, facts


def _build_shadow(config: EngineConfig) -> _Built:
    resolved = resolve(config, _SHADOW)
    executor = ShadowExecutor(
        num_blocks=resolved.num_blocks,
        block_size=resolved.block_size,
        vocab_size=resolved.vocab_size,
        num_host_blocks=resolved.num_host_blocks,
    )
    return _Built(resolved, executor, (("executor", "shadow (no model)"),))


def _build_torch(config: EngineConfig) -> _Built:
    model = load_model(config)
    resolved, executor = give_memory(config, model)
    return _Built(resolved, executor, model.description, model.weight_bytes, model.kv_dtype)


def give_memory(config: EngineConfig, model: LoadedModel) -> tuple[ResolvedEngine, Executor]:
    """A loaded model gets its KV cache. It may get several, for engines that run in turns."""
    capabilities = Capabilities(
        max_position_embeddings=model.max_position_embeddings,
        vocab_size=model.vocab_size,
        bytes_per_block=model.bytes_per_block(config.block_size),
        free_memory=available_memory(),
    )
    resolved = resolve(config, capabilities)
    executor = model.executor(
        num_blocks=resolved.num_blocks,
        block_size=resolved.block_size,
        max_num_seqs=resolved.max_num_seqs,
        max_num_batched_tokens=resolved.max_num_batched_tokens,
        max_model_len=resolved.max_model_len,
        num_host_blocks=resolved.num_host_blocks,
    )
    return resolved, executor


_BUILDERS = {ExecutorKind.SHADOW: _build_shadow, ExecutorKind.TORCH: _build_torch}


def load_model(config: EngineConfig) -> LoadedModel:
    """Raises `ModelError`. Takes as long as it takes."""
    # Read once, when torch brings the OpenMP runtime in. A thread that waits spins this often before it sleeps: long
    # spinning keeps the very core that the other thread needs, and under any other load (the front, a neighbour) a step
    # then takes ten times as long. docs/benchmarks.md has the figures.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    # By name, so that the front, which never computes, does not wait for torch to be imported.
    build = import_module("evenflow.executors.torch.build")
    return cast(
        LoadedModel,
        build.load(
            config.model,
            dtype=config.dtype.value,
            quantize=config.quantize.value,
            kv_dtype=config.kv_dtype.value,
            threads=config.threads,
            seed=config.seed,
        ),
    )


def assemble(
    resolved: ResolvedEngine,
    executor: Executor,
    *,
    policy: PolicySpec | None = None,
    paranoid: bool = False,
    clock: Clock | None = None,
    stopwatch: Callable[[], float] = time.perf_counter,
    keeps_log: bool = True,
    gives_outputs: bool = True,
) -> EngineCore:
    """`policy` is that of the configuration, and the clock the system's, if not given. `keeps_log`: see EngineCore;
    `gives_outputs`: see Scheduler."""
    events: list[Event] = []
    kv = KVCacheManager(
        num_blocks=resolved.num_blocks,
        block_size=resolved.block_size,
        prefix_caching=resolved.prefix_caching,
        num_host_blocks=resolved.num_host_blocks,
    )
    scheduler = Scheduler(
        SchedulerConfig(
            max_num_seqs=resolved.max_num_seqs,
            max_model_len=resolved.max_model_len,
            vocab_size=resolved.vocab_size,
            watermark_blocks=resolved.watermark_blocks,
            max_num_batched_tokens=resolved.max_num_batched_tokens,
        ),
        kv,
        policy or resolved.policy,
        events.append,
        keeps_log=keeps_log,
        gives_outputs=gives_outputs,
    )
    return EngineCore(
        scheduler,
        executor,
        clock or MonotonicClock(),
        events,
        check_every_step=paranoid,
        stopwatch=stopwatch,
        keeps_log=keeps_log,
    )


def _facts(built: _Built) -> EngineFacts:
    resolved = built.resolved
    return EngineFacts(
        max_model_len=resolved.max_model_len,
        vocab_size=resolved.vocab_size,
        num_kv_blocks=resolved.num_blocks,
        block_size=resolved.block_size,
        max_num_seqs=resolved.max_num_seqs,
        max_num_batched_tokens=resolved.max_num_batched_tokens,
        settings=(
            *built.description,
            ("max_model_len", str(resolved.max_model_len)),
            ("max_num_seqs", str(resolved.max_num_seqs)),
            ("max_num_batched_tokens", str(resolved.max_num_batched_tokens)),
            ("watermark_blocks", str(resolved.watermark_blocks)),
            ("prefix_caching", "on" if resolved.prefix_caching else "off"),
            ("policy", resolved.policy_name),
        ),
        memory=_memory(built),
    )


def _memory(built: _Built) -> tuple[MemoryUse, ...]:
    """The KV cache is touched block by block, so at this point what is resident is the weights and the rest."""
    if built.weight_bytes is None:
        return ()
    resolved, resident = built.resolved, resident_memory()
    tokens = resolved.num_blocks * resolved.block_size
    blocks = f"{resolved.num_blocks} blocks x {resolved.block_size} tokens = {tokens} tokens"
    uses = [
        MemoryUse("weights", built.weight_bytes, "as the kernels read them"),
        MemoryUse("KV cache", resolved.kv_bytes, f"{blocks}, {built.kv_dtype}; taken as it fills"),
    ]
    if resolved.num_host_blocks:
        host_blocks = f"{resolved.num_host_blocks} blocks for preempted requests"
        uses.append(MemoryUse("host KV", resolved.host_kv_bytes, host_blocks))
    if resident is not None:
        uses.append(MemoryUse("other", max(0, resident - built.weight_bytes), "libraries and buffers of this process"))
    return tuple(uses)
