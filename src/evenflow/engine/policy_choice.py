"""From what a person writes to a `PolicySpec`: a preset's name or a file, and single settings laid over it.

    evenflow serve --policy evenflow-interactive --policy-set itl_target=0.03 --policy-set classes.batch.max_seats=0.25

A file is TOML or JSON with the same fields, a `preset` among them if it starts from one. A setting's value is a number,
true or false where it reads as one, and text otherwise; dots lead into tables, and `none` is no value.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from evenflow.core.errors import ConfigError
from evenflow.core.policy.presets import PRESETS, policy_of
from evenflow.core.policy.spec import PolicySpec
from evenflow.core.policy.spelling import nearest
from evenflow.core.policy.table import policy_from_table
from evenflow.files.small_file import read_small_text

MAX_FILE_BYTES = 1 << 20


def choose_policy(policy: str, settings: Sequence[str] = ()) -> PolicySpec:
    """Raises ConfigError (PolicyError for a wrong field) with what would work."""
    if policy in PRESETS:
        spec = policy_of(policy)
    elif policy.endswith((".toml", ".json")):
        spec = policy_from_table(read_policy_file(Path(policy)))
    else:
        close = nearest(policy, PRESETS)
        meant = f"did you mean {close}? " if close in PRESETS else ""
        raise ConfigError(
            f"there is no policy {policy!r}; {meant}It is one of {', '.join(PRESETS)}, or a .toml or .json file"
        )
    return policy_from_table(table_of(settings), spec)


def read_policy_file(path: Path) -> Mapping[str, object]:
    try:
        text = read_small_text(path, MAX_FILE_BYTES)
        table = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"cannot read the policy file {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"policy file {path}: {error}") from error
    if not isinstance(table, dict):
        raise ConfigError(f"policy file {path} must hold a table of settings, not {type(table).__name__}")
    scheduling = table.get("scheduling", table)  # a whole evenflow.toml has the policy in a section of its own
    if not isinstance(scheduling, dict):
        raise ConfigError(f"policy file {path}: scheduling must be a table of settings")
    return scheduling


def table_of(settings: Sequence[str]) -> dict[str, object]:
    """`["a=1", "b.c=x"]` as `{"a": 1, "b": {"c": "x"}}`."""
    table: dict[str, object] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        path = [part.strip() for part in name.split(".")]
        if not equals or not all(path):
            raise ConfigError(f"a policy setting is written name=value, not {setting!r}")
        inner = table
        for part in path[:-1]:
            child = inner.setdefault(part, {})
            if not isinstance(child, dict):
                raise ConfigError(f"the policy settings give {part!r} a value and fields of its own")
            inner = child
        inner[path[-1]] = _value(value.strip())
    return table


def _value(text: str) -> object:
    return None if text == "none" else literal(text)


def literal(text: str) -> int | float | bool | str:
    """What a value on a command line means."""
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text, text)
