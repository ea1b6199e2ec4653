"""Parameters that several commands share."""

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from evenflow.core.errors import ConfigError
from evenflow.engine.config import EngineConfig
from evenflow.files.whole_file import check_place

EngineOptions = Annotated[EngineConfig, Parameter(name="*", group=Group("Model and engine", sort_key=2))]
"""A flag for each setting, in a box of their own."""

Switch = Annotated[bool, Parameter(negative="", show_default=False)]
"""Off unless it is given."""


def check_out(*paths: Path, inputs: Iterable[Path] = ()) -> None:
    """That what is to be computed can be kept, and not over what it is computed from, is known before hours go into
    it."""
    taken = {path.resolve() for path in inputs}
    for path in paths:
        if path.resolve() in taken:
            raise ConfigError(f"out: {path} would replace what is read; give another --out")
        try:
            check_place(path)
        except OSError as error:
            raise ConfigError(f"out: {path} cannot be written ({error.strerror}); give another --out") from error


def refuse(config: EngineConfig, *names: str) -> None:
    """What a bench chooses itself is not silently ignored."""
    for name in names:
        (default,) = (field.default for field in fields(config) if field.name == name)
        if getattr(config, name) != default:
            raise ConfigError(f"{name} is what this bench chooses itself; leave --{name.replace('_', '-')} out")
