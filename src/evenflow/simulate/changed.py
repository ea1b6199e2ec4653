"""A change that somebody proposes, laid over what was simulated: settings of the engine, of its policy, or of both.

`max_num_seqs` and `max_num_batched_tokens` are both: the engine is built for so many, and its policy may keep to fewer.
A change names what shall hold, so the engine gets it and the policy keeps to no other.
"""

from collections.abc import Sequence
from dataclasses import fields, replace

from evenflow.core.errors import ConfigError
from evenflow.core.policy.spec import PolicySpec
from evenflow.core.policy.table import policy_from_table
from evenflow.engine.policy_choice import table_of
from evenflow.simulate.config import SimulationConfig, with_settings

_OF_ENGINE = {field.name for field in fields(SimulationConfig)} - {"policy"}
_OF_POLICY = {field.name for field in fields(PolicySpec)}


def changed(config: SimulationConfig, settings: Sequence[tuple[str, str]]) -> SimulationConfig:
    """Raises ConfigError (PolicyError) for what a simulation has no such setting of, or not such a value."""
    unknown = [name for name, _ in settings if name.partition(".")[0] not in _OF_ENGINE | _OF_POLICY]
    if unknown:
        raise ConfigError(f"the simulation has no setting {', '.join(unknown)}")
    engine = [(name, value) for name, value in settings if name in _OF_ENGINE]
    laid_over = [f"{name}={value}" for name, value in settings if name not in _OF_ENGINE]
    both: dict[str, None] = {name: None for name, _ in engine if name in _OF_POLICY}
    spec = replace(policy_from_table(table_of(laid_over), config.spec()), **both)  # type: ignore[arg-type]  # the caps
    return with_settings(replace(config, policy=spec), [f"{name}={value}" for name, value in engine])
