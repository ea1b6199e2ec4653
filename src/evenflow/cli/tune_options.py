"""What `evenflow tune` may be told: how to search, and what of the engine is not varied."""

from dataclasses import dataclass, field, fields
from pathlib import Path

from cyclopts.types import NonNegativeInt, PositiveInt

from evenflow.cli.options import Switch
from evenflow.engine.config import Dtype, EngineConfig, ExecutorKind, KVDtype, Quantize


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """What is searched, and how long."""

    objective: str = "throughput"
    """What should be best: throughput, goodput:ttft=1s,itl=150ms, or a statistic such as ttft_p95."""
    vary: tuple[str, ...] = ()
    """One knob and its values, as max_num_seqs=16,32 or policy.interleave=shared,decode-first; may be given again."""
    space: Path | None = None
    """TOML file with a list of values for each knob."""
    simulate_only: Switch = False
    """Predict, and start no server: for a cost file of other hardware."""
    num_blocks: int | None = None
    """KV blocks of the simulated engine; what the cost file knows of the memory if not given."""
    num_host_blocks: int = 0
    """Host blocks of the simulated engine, for preemption by swap."""
    tolerance: float = 0.05
    """How far the cost may be off: configurations predicted so near to the best, or to a limit, may still race."""
    max_live: PositiveInt = 3
    """Most configurations that race live."""
    max_rounds: PositiveInt = 4
    """Most rounds of a race; every configuration runs the load once in a round."""
    warm_up: str | None = None
    """Cut so much off the beginning of every run; a tenth of it if not given."""
    jobs: NonNegativeInt = 0
    """Processes that simulate at once; as many as there are cores if 0."""
    force: Switch = False
    """Take a cost file that was measured on another machine or by another version."""
    out: Path = field(default=Path("tune"))
    """Folder for evenflow.toml, report.html and the journal; a search that was stopped goes on in it."""


_DEFAULTS = EngineConfig()


@dataclass(frozen=True, slots=True)
class TunedEngine:
    """What is not varied of the engine that serves, and so of the live runs; as `evenflow serve` has it."""

    model: str = _DEFAULTS.model
    """A name from `evenflow model list`, a folder, a .gguf file, or a hub name (owner/model)."""
    dtype: Dtype = _DEFAULTS.dtype
    """Number format of weights and activations."""
    quantize: Quantize = _DEFAULTS.quantize
    """int8 computes in int8, auto where that is fastest."""
    kv_dtype: KVDtype = _DEFAULTS.kv_dtype
    """Number format of the KV cache."""
    kv_memory: str | None = None
    """Memory for the KV cache, such as 2GiB; the same as when the cost was measured. A kv_share is of this."""
    host_kv_memory: str = _DEFAULTS.host_kv_memory
    """Memory that keeps the blocks of preempted requests."""
    block_size: int = _DEFAULTS.block_size
    """Tokens in one block of the KV cache."""
    prefix_caching: bool | None = None
    """Keep the KV blocks of prompts and share them; on if not given."""
    watermark: float = _DEFAULTS.watermark
    """Share of the KV blocks that must stay free when a request is admitted."""
    threads: int | None = None
    """Threads that compute the model."""
    executor: ExecutorKind = _DEFAULTS.executor
    """torch runs the model; shadow runs none, for tests."""

    def config(self, max_model_len: int | None) -> EngineConfig:
        return EngineConfig(
            max_model_len=max_model_len, **{each.name: getattr(self, each.name) for each in fields(self)}
        )
