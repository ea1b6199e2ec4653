"""One configuration as the settings of an engine: simulated, live, or in a file to serve with.

What a search does not vary is the base: a `SimulationConfig` for the simulated engine, an `EngineConfig` for the live
one. A share of the KV memory is a share of what the base has.
"""

from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import NamedTuple

from evenflow.core.config import SchedulerConfig
from evenflow.core.errors import ConfigError
from evenflow.core.policy.registry import bounds_of
from evenflow.core.policy.spec import PolicySpec
from evenflow.engine.config import EngineConfig, ResolvedEngine, parse_bytes
from evenflow.engine.policy_choice import choose_policy
from evenflow.simulate.config import SimulationConfig
from evenflow.tune.space import POLICY_FIELD, Cell, Space, shown


@dataclass(frozen=True, slots=True)
class Settings:
    """`policy_set` has name=value lines that are laid over the policy."""

    max_num_batched_tokens: int = 512
    max_num_seqs: int = 128
    kv_share: float = 1.0
    policy: str = "evenflow-throughput"
    policy_set: tuple[str, ...] = ()

    def spec(self) -> PolicySpec:
        """Raises ConfigError, PolicyError."""
        return choose_policy(self.policy, self.policy_set)


def settings_of(cell: Cell) -> Settings:
    values = dict(cell.values)
    laid = tuple(
        f"{name.removeprefix(POLICY_FIELD)}={shown(value)}"
        for name, value in cell.values
        if name.startswith(POLICY_FIELD)
    )
    tokens, seqs, share, policy = (
        values[name] for name in ("max_num_batched_tokens", "max_num_seqs", "kv_share", "policy")
    )
    assert isinstance(tokens, int) and isinstance(seqs, int)  # the space checked all four
    return Settings(tokens, seqs, float(share), str(policy), laid)


def simulated(settings: Settings, base: SimulationConfig, kv_tokens: int | None) -> SimulationConfig:
    """`kv_tokens` is what the cost knows of the memory. Raises ConfigError for what no engine would start with."""
    most = base.resolve(kv_tokens).num_blocks
    num_blocks = max(1, int(most * settings.kv_share))
    if base.max_model_len is not None:
        # A live engine takes no more than its seats could fill.
        num_blocks = min(num_blocks, settings.max_num_seqs * -(-base.max_model_len // base.block_size))
    config = replace(
        base,
        policy=settings.spec(),
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        num_blocks=num_blocks,
    )
    check(config.resolve(kv_tokens))
    return config


def check(resolved: ResolvedEngine) -> None:
    """Raises PolicyError with everything that is wrong with the policy in such an engine."""
    limits = SchedulerConfig(
        resolved.max_num_seqs,
        resolved.max_model_len,
        resolved.vocab_size,
        resolved.watermark_blocks,
        resolved.max_num_batched_tokens,
    )
    bounds_of(resolved.policy, limits, num_blocks=resolved.num_blocks, block_size=resolved.block_size)


class Illegal(NamedTuple):
    cell: Cell
    reason: str


def legal_cells(
    space: Space, base: SimulationConfig, kv_tokens: int | None
) -> tuple[dict[Cell, SimulationConfig], tuple[Illegal, ...]]:
    """Every cell, as an engine or with the reason why none would start. Raises ConfigError if none is legal."""
    legal: dict[Cell, SimulationConfig] = {}
    illegal = []
    for cell in space.cells():
        try:
            legal[cell] = simulated(settings_of(cell), base, kv_tokens)
        except ConfigError as error:
            illegal.append(Illegal(cell, str(error)))
    if not legal:
        raise ConfigError(f"no cell of the grid is a configuration that could run; the first: {illegal[0].reason}")
    return legal, tuple(illegal)


def live(settings: Settings, base: EngineConfig) -> EngineConfig:
    """Raises ConfigError for a share of a memory whose size nobody said."""
    kv_memory = base.kv_memory
    if settings.kv_share < 1.0:
        if kv_memory is None:
            raise ConfigError("a kv_share below 1 is of the KV memory of a live engine; say how much with --kv-memory")
        kv_memory = str(int(parse_bytes("kv_memory", kv_memory) * settings.kv_share))
    return replace(
        base,
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        kv_memory=kv_memory,
        policy=settings.policy,
        policy_set=settings.policy_set,
    )


def arguments_of(config: EngineConfig) -> list[str]:
    """For `evenflow serve`: a flag for everything that is not as it is anyway."""
    arguments: list[str] = []
    for field in fields(config):
        value, flag = getattr(config, field.name), f"--{field.name.replace('_', '-')}"
        if value == field.default:
            continue
        if isinstance(value, bool):
            arguments.append(flag if value else f"--no-{flag[2:]}")
        elif isinstance(value, tuple):
            for each in value:
                arguments += [flag, each]
        else:
            arguments += [flag, value.value if isinstance(value, Enum) else str(value)]
    return arguments
