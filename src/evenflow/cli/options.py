"""Parameters that several commands share."""

from dataclasses import fields
from typing import Annotated

from cyclopts import Group, Parameter

from evenflow.core.errors import ConfigError
from evenflow.engine.config import EngineConfig

EngineOptions = Annotated[EngineConfig, Parameter(name="*", group=Group("Model and engine", sort_key=2))]
"""A flag for each setting, in a box of their own."""

Switch = Annotated[bool, Parameter(negative="", show_default=False)]
"""Off unless it is given."""


def refuse(config: EngineConfig, *names: str) -> None:
    """What a bench chooses itself is not silently ignored."""
    for name in names:
        (default,) = (field.default for field in fields(config) if field.name == name)
        if getattr(config, name) != default:
            raise ConfigError(f"{name} is what this bench chooses itself; leave --{name.replace('_', '-')} out")
