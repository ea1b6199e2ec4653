"""What a user sets (`EngineConfig`, frozen, may say "auto") and what will run (`ResolvedEngine`, nothing left open).

Nothing is ever written back: `resolve` takes what the user said and what the model and the machine are, and returns
another type, or raises `ConfigError` with the nearest thing that would work.
"""

import re
from dataclasses import dataclass
from enum import Enum

from evenflow.core.errors import ConfigError
from evenflow.core.policy.presets import DEFAULT_PRESET
from evenflow.core.policy.spec import PolicySpec
from evenflow.engine.policy_choice import choose_policy


class Dtype(Enum):
    AUTO = "auto"
    BF16 = "bf16"
    FP32 = "fp32"


class Quantize(Enum):
    AUTO = "auto"
    NONE = "none"
    INT8 = "int8"


class KVDtype(Enum):
    AUTO = "auto"
    BF16 = "bf16"
    INT8 = "int8"


class ExecutorKind(Enum):
    TORCH = "torch"
    SHADOW = "shadow"


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Settings of one engine; each is a command-line flag of the same name."""

    model: str = "smollm2-135m"
    """A name from `evenflow model list`, a folder in Hugging Face layout, a .gguf file, or a hub name (owner/model)."""
    dtype: Dtype = Dtype.AUTO
    """Number format of weights and activations; auto takes bf16 where the processor multiplies it, else fp32."""
    quantize: Quantize = Quantize.NONE
    """int8 computes in int8 (W8A8), whatever format the model's file has; auto does so where that is fastest."""
    kv_dtype: KVDtype = KVDtype.AUTO
    """Number format of the KV cache; auto is that of the weights. int8 holds nearly twice the tokens of bf16."""
    max_model_len: int | None = None
    """Most tokens of one request, prompt and output together; as many as the model allows if not given."""
    max_num_seqs: int = 128
    """Most requests that run at once; the others wait in the queue."""
    max_num_batched_tokens: int = 512
    """Most tokens that one iteration computes. Less makes streams steadier beside long prompts, more prompts faster."""
    block_size: int = 32
    """Tokens in one block of the KV cache; a power of two. The native kernels want 16 or more, and like 32."""
    kv_memory: str | None = None
    """Memory for the KV cache, such as 2GiB; if not given, what could be filled, up to a quarter of the free memory."""
    host_kv_memory: str = "0"
    """Memory beside the KV cache, such as 4GiB, that keeps the blocks of preempted requests; 0 is none."""
    prefix_caching: bool | None = None
    """Keep the KV blocks of prompts and share them with prompts that begin alike; on if not given."""
    policy: str | None = None
    """Scheduling policy: a preset of `evenflow policies`, or a .toml or .json file; evenflow-balanced for a server and
    evenflow-throughput for offline work if not given."""
    policy_set: tuple[str, ...] = ()
    """One setting of the policy as name=value, such as order=priority; may be given several times."""
    watermark: float = 0.01
    """Share of the KV blocks that must stay free when a request is admitted, so that those that run can grow."""
    seed: int | None = None
    """Seed for the sampling of requests that bring none; random if not given."""
    threads: int | None = None
    """Threads that compute the model; $OMP_NUM_THREADS, or every core, if not given."""
    executor: ExecutorKind = ExecutorKind.TORCH
    """torch runs the model. shadow runs none, and gives tokens that only a correct memory can give: for tests."""
    paranoid: bool = False
    """Check every invariant after every step; slow, for hunting bugs."""

    def policy_spec(self) -> PolicySpec:
        """Raises ConfigError (PolicyError for a wrong field) with what would work."""
        return choose_policy(self.policy or DEFAULT_PRESET, self.policy_set)

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "block_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.max_num_seqs > 4096:
            raise ConfigError(f"max_num_seqs must be at most 4096, not {self.max_num_seqs}")
        if self.max_num_batched_tokens > 65536:
            raise ConfigError(f"max_num_batched_tokens must be at most 65536, not {self.max_num_batched_tokens}")
        if self.block_size & (self.block_size - 1) or self.block_size > 256:
            raise ConfigError(f"block_size must be a power of two up to 256, not {self.block_size}")
        if self.max_model_len is not None and self.max_model_len < 2:
            raise ConfigError(f"max_model_len must be at least 2, not {self.max_model_len}")
        if not 0.0 <= self.watermark < 1.0:
            raise ConfigError(f"watermark must be at least 0 and below 1, not {self.watermark}")
        if self.threads is not None and not 1 <= self.threads <= 1024:
            raise ConfigError(f"threads must be between 1 and 1024, not {self.threads}")
        if self.kv_memory is not None:
            parse_bytes("kv_memory", self.kv_memory)
        if self.host_kv_memory != "0":
            parse_bytes("host_kv_memory", self.host_kv_memory)


_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1024, "mi": 1024**2, "gi": 1024**3}


def parse_bytes(name: str, text: str) -> int:
    """A positive number of bytes from "512MB", "2GiB", "1.5g" or "1000000"."""
    match = re.fullmatch(r"\s*([0-9]{1,18}(?:\.[0-9]{1,6})?)\s*([kmg]i?)?b?\s*", text, re.IGNORECASE)
    if match is None:
        raise ConfigError(f"{name} must be a size such as 512MB or 2GiB, not {text!r}")
    num_bytes = int(float(match[1]) * _UNITS[(match[2] or "").lower()])
    if num_bytes < 1:
        raise ConfigError(f"{name} must be more than nothing, not {text!r}")
    return num_bytes


def format_bytes(num_bytes: int) -> str:
    for unit, size in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if num_bytes >= size:
            return f"{num_bytes / size:.4g} {unit}"
    return f"{num_bytes} bytes"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the model and the machine are. `free_memory` is in bytes, measured once the weights are loaded."""

    max_position_embeddings: int
    vocab_size: int
    bytes_per_block: int
    free_memory: int


@dataclass(frozen=True, slots=True)
class ResolvedEngine:
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    num_blocks: int
    kv_bytes: int
    num_host_blocks: int
    host_kv_bytes: int
    watermark_blocks: int
    vocab_size: int
    prefix_caching: bool
    policy_name: str
    policy: PolicySpec


def resolve(config: EngineConfig, capabilities: Capabilities) -> ResolvedEngine:
    """Settle every open question; raises `ConfigError` if the answer is that nothing would fit."""
    max_model_len = _resolve_max_model_len(config, capabilities)
    blocks_per_request = -(-max_model_len // config.block_size)
    num_blocks = _resolve_num_blocks(config, capabilities, most_useful=config.max_num_seqs * blocks_per_request)
    pool_tokens = num_blocks * config.block_size
    if config.max_model_len is not None and pool_tokens < config.max_model_len:
        needed = blocks_per_request * capabilities.bytes_per_block
        raise ConfigError(
            f"a KV cache of {format_bytes(num_blocks * capabilities.bytes_per_block)} holds {pool_tokens} tokens, less "
            f"than one request of max_model_len {config.max_model_len}; raise kv_memory to at least "
            f"{format_bytes(needed)} or lower max_model_len to {pool_tokens}"
        )
    num_host_blocks = _resolve_num_host_blocks(config, capabilities, num_blocks)
    policy = config.policy_spec()
    if policy.preemption == "swap" and num_host_blocks == 0:
        raise ConfigError("preemption swap needs host memory to swap to; set host_kv_memory, such as 1GiB")
    return ResolvedEngine(
        max_model_len=min(max_model_len, pool_tokens),
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        block_size=config.block_size,
        num_blocks=num_blocks,
        kv_bytes=num_blocks * capabilities.bytes_per_block,
        num_host_blocks=num_host_blocks,
        host_kv_bytes=num_host_blocks * capabilities.bytes_per_block,
        watermark_blocks=int(config.watermark * num_blocks),
        vocab_size=capabilities.vocab_size,
        prefix_caching=config.prefix_caching is not False,
        policy_name=" ".join((config.policy or DEFAULT_PRESET, *config.policy_set)),
        policy=policy,
    )


def _resolve_max_model_len(config: EngineConfig, capabilities: Capabilities) -> int:
    most = capabilities.max_position_embeddings
    if config.max_model_len is None:
        return most
    if config.max_model_len > most:
        raise ConfigError(f"max_model_len {config.max_model_len} is more than the model's {most}; use at most {most}")
    return config.max_model_len


def _resolve_num_blocks(config: EngineConfig, capabilities: Capabilities, *, most_useful: int) -> int:
    per_block, free = capabilities.bytes_per_block, capabilities.free_memory
    if config.kv_memory is None:
        num_blocks = min(most_useful, free // 4 // per_block)
        if num_blocks < 1:
            raise ConfigError(
                f"nothing fits: one KV block of {config.block_size} tokens takes {format_bytes(per_block)} and a "
                f"quarter of the free memory is {format_bytes(free // 4)}; free some memory, lower block_size or set "
                f"kv_memory"
            )
        return num_blocks
    wanted = parse_bytes("kv_memory", config.kv_memory)
    if wanted > free:
        raise ConfigError(
            f"kv_memory {config.kv_memory} does not fit: {format_bytes(free)} of memory is free once the weights are "
            f"loaded; use less than that"
        )
    if wanted < per_block:
        raise ConfigError(
            f"kv_memory {config.kv_memory} holds no KV block: one of {config.block_size} tokens takes "
            f"{format_bytes(per_block)}; use at least that"
        )
    return min(wanted // per_block, most_useful)


def _resolve_num_host_blocks(config: EngineConfig, capabilities: Capabilities, num_blocks: int) -> int:
    if config.host_kv_memory == "0":
        return 0
    per_block = capabilities.bytes_per_block
    wanted = parse_bytes("host_kv_memory", config.host_kv_memory)
    free = capabilities.free_memory - num_blocks * per_block
    if wanted > free:
        raise ConfigError(
            f"host_kv_memory {config.host_kv_memory} does not fit: {format_bytes(max(0, free))} of memory is free "
            f"beside the weights and the KV cache; use less than that, or lower kv_memory"
        )
    if wanted < per_block:
        raise ConfigError(
            f"host_kv_memory {config.host_kv_memory} holds no KV block: one of {config.block_size} tokens takes "
            f"{format_bytes(per_block)}; use at least that, or 0 to swap nothing"
        )
    return wanted // per_block
