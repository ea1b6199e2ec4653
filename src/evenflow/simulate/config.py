"""What is simulated: the settings of a resolved engine that decide what runs when, and nothing of what computes it."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from evenflow.core.errors import ConfigError
from evenflow.core.policy.presets import DEFAULT_PRESET
from evenflow.core.policy.spec import PolicySpec
from evenflow.engine.config import EngineConfig, ResolvedEngine
from evenflow.engine.policy_choice import choose_policy

VOCAB_SIZE = 2**62
"""Simulated token ids name the content they stand for (tokens.py); there are as many as there is content."""

_UNLIMITED_MODEL_LEN = 1 << 24
MOST = 1 << 24
"""Of blocks, seats and tokens: more than any machine has. A pool of so many blocks takes about 2 GB here."""
_LIVE = EngineConfig()


@dataclass(frozen=True, slots=True)
class SimulationConfig:
    """As `EngineConfig`, with KV memory in blocks. `policy` is a preset, a file, or the spec itself.

    `num_blocks` None is what the cost file says the cache held; `max_model_len` None is what the KV memory holds.
    """

    policy: str | PolicySpec = DEFAULT_PRESET
    max_num_seqs: int = _LIVE.max_num_seqs
    max_num_batched_tokens: int = _LIVE.max_num_batched_tokens
    block_size: int = _LIVE.block_size
    num_blocks: int | None = None
    num_host_blocks: int = 0
    prefix_caching: bool = True
    watermark: float = _LIVE.watermark
    max_model_len: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "block_size", "num_blocks", "max_model_len"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= MOST:
                raise ConfigError(f"{name} must be at least 1 and at most {MOST}, not {value}")
        if not 0 <= self.num_host_blocks <= MOST:
            raise ConfigError(
                f"num_host_blocks must be 0 (none) or more, and at most {MOST}, not {self.num_host_blocks}"
            )
        if not 0.0 <= self.watermark < 1.0:
            raise ConfigError(f"watermark must be at least 0 and below 1, not {self.watermark}")

    @classmethod
    def of(cls, resolved: ResolvedEngine) -> "SimulationConfig":
        """What a live engine runs with."""
        return cls(
            policy=resolved.policy,
            max_num_seqs=resolved.max_num_seqs,
            max_num_batched_tokens=resolved.max_num_batched_tokens,
            block_size=resolved.block_size,
            num_blocks=resolved.num_blocks,
            num_host_blocks=resolved.num_host_blocks,
            prefix_caching=resolved.prefix_caching,
            watermark=resolved.watermark_blocks / resolved.num_blocks,
            max_model_len=resolved.max_model_len,
        )

    def spec(self) -> PolicySpec:
        return self.policy if isinstance(self.policy, PolicySpec) else choose_policy(self.policy)

    def resolve(self, kv_tokens: int | None) -> ResolvedEngine:
        """`kv_tokens` is what the cost knows of the memory. Raises ConfigError, PolicyError."""
        num_blocks = self.num_blocks
        if num_blocks is None:
            if kv_tokens is None:
                raise ConfigError("the cost file does not say how much KV memory there is; set num_blocks")
            num_blocks = max(1, kv_tokens // self.block_size)
            if num_blocks > MOST:
                raise ConfigError(
                    f"the cost file says that {kv_tokens} tokens fit into the KV memory; that is {num_blocks} blocks, "
                    f"where at most {MOST} are simulated; set num_blocks or a larger block_size"
                )
        pool_tokens = num_blocks * self.block_size
        spec = self.spec()
        if spec.preemption == "swap" and self.num_host_blocks == 0:
            raise ConfigError("preemption swap needs host memory to swap to; set num_host_blocks")
        return ResolvedEngine(
            max_model_len=max(2, min(self.max_model_len or _UNLIMITED_MODEL_LEN, pool_tokens)),
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            block_size=self.block_size,
            num_blocks=num_blocks,
            kv_bytes=0,
            num_host_blocks=self.num_host_blocks,
            host_kv_bytes=0,
            # Rounded first: a share that came from a number of blocks gives that number again.
            watermark_blocks=int(round(self.watermark * num_blocks, 6)),
            vocab_size=VOCAB_SIZE,
            prefix_caching=self.prefix_caching,
            policy_name=self.policy if isinstance(self.policy, str) else "given",
            policy=spec,
        )

    def settings(self, resolved: ResolvedEngine) -> tuple[tuple[str, str], ...]:
        """Printable, as a live engine announces them."""
        names = ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size", "num_blocks")
        more = ("num_host_blocks", "watermark_blocks", "prefix_caching", "policy_name")
        said = [(name, str(getattr(resolved, name))) for name in (*names, *more)]
        return (("executor", "simulated"), *said)


def with_settings(config: SimulationConfig, settings: Sequence[str]) -> SimulationConfig:
    """`["max_num_seqs=32", "prefix_caching=false"]` laid over a configuration. Raises ConfigError."""
    kinds = {field.name: field.type for field in fields(SimulationConfig)}
    changes: dict[str, object] = {}
    for setting in settings:
        name, equals, text = (part.strip() for part in setting.partition("="))
        if not equals or name not in kinds:
            raise ConfigError(f"a setting is written name=value, with a name of {', '.join(kinds)}; not {setting!r}")
        changes[name] = _value(name, text)
    return replace(config, **changes)  # type: ignore[arg-type]  # `_value` gives what the field wants


def _value(name: str, text: str) -> object:
    if name == "policy":
        return text
    if name == "prefix_caching":
        if text not in ("true", "false"):
            raise ConfigError(f"prefix_caching must be true or false, not {text!r}")
        return text == "true"
    try:
        return float(text) if name == "watermark" else int(text)
    except ValueError:
        wanted = "a number" if name == "watermark" else "a whole number"
        raise ConfigError(f"{name} must be {wanted}, not {text!r}") from None
