"""`evenflow.toml`: the configuration that a search chose, in the form that `evenflow serve --config` takes."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from enum import Enum
from pathlib import Path

from evenflow.core.errors import EvenflowError
from evenflow.core.policy.presets import PRESETS
from evenflow.core.policy.spec import PolicySpec
from evenflow.core.policy.table import policy_to_table
from evenflow.engine.config import EngineConfig
from evenflow.engine.policy_choice import table_of
from evenflow.files.whole_file import write_whole
from evenflow.observe.visible import visible
from evenflow.tune.settings import Settings


class ConfigFileError(EvenflowError):
    """The file cannot be written; the message names it."""


_KNOBS = ("max_num_seqs", "max_num_batched_tokens")


def write_config(path: Path, settings: Settings, engine: EngineConfig | None, remarks: tuple[str, ...]) -> None:
    """`engine` is the live configuration, if one was tried; without it the KV memory is left to whoever serves."""
    try:
        write_whole(path, config_text(settings, engine, remarks).encode())
    except OSError as error:
        raise ConfigFileError(f"cannot write {path}: {error.strerror}") from error


def config_text(settings: Settings, engine: EngineConfig | None, remarks: tuple[str, ...] = ()) -> str:
    lines = [*(f"# {visible(line)}" for remark in remarks for line in remark.splitlines()), "", "[engine]"]
    lines += [f"{name} = {_value(value)}" for name, value in _engine(settings, engine)]
    lines += ["", "[scheduling]", *(f"{name} = {_value(value)}" for name, value in _scheduling(settings))]
    return "\n".join(lines).lstrip("\n") + "\n"


def _engine(settings: Settings, engine: EngineConfig | None) -> Iterator[tuple[str, object]]:
    for name in _KNOBS:
        yield name, getattr(settings, name)
    if engine is None:
        return
    for field in fields(engine):
        value = getattr(engine, field.name)
        if field.name not in (*_KNOBS, "policy", "policy_set") and value != field.default:
            yield field.name, value.value if isinstance(value, Enum) else value


def _scheduling(settings: Settings) -> Iterator[tuple[str, object]]:
    if settings.policy in PRESETS:
        yield "preset", settings.policy
        yield from _dotted(table_of(settings.policy_set))
        return
    usual = policy_to_table(PolicySpec())
    chosen = policy_to_table(settings.spec())
    yield from _dotted({name: value for name, value in chosen.items() if value != usual[name]})


def _dotted(table: Mapping[str, object], path: str = "") -> Iterator[tuple[str, object]]:
    """TOML has no null: what is None is what it would be anyway, and left out."""
    for name, value in table.items():
        key = path + (name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else json.dumps(name))
        if isinstance(value, Mapping):
            yield from _dotted(value, key + ".")
        elif value is not None:
            yield key, value


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float | int):
        return repr(value)
    return json.dumps(str(value))
