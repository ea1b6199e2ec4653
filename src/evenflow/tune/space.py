"""The configurations that a tuner looks at: a grid of knobs, each with the values it may take.

    --vary max_num_seqs=16,32,64 --vary policy=sarathi,vllm --vary policy.interleave=decode-first,shared

    max_num_seqs = [16, 32, 64]            the same in a TOML file, for --space
    policy = ["sarathi", "vllm"]
    "policy.interleave" = ["decode-first", "shared"]

`max_num_batched_tokens`, `max_num_seqs` and `kv_share` (of the KV memory that the engine could have) are the engine's;
`policy` is a preset or a policy file; `policy.FIELD` is one setting laid over it. A cell is one value of each.
"""

import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from evenflow.core.errors import ConfigError
from evenflow.engine.policy_choice import literal
from evenflow.files.small_file import read_small_text

Value = int | float | str | bool

MAX_CELLS = 5000
MAX_FILE_BYTES = 1 << 16
POLICY_FIELD = "policy."

_ENGINE_KNOBS: Mapping[str, type] = {
    "max_num_batched_tokens": int,
    "max_num_seqs": int,
    "kv_share": float,
    "policy": str,
}

DEFAULTS: Mapping[str, tuple[Value, ...]] = {
    "max_num_batched_tokens": (256, 512, 1024, 2048),
    "max_num_seqs": (16, 32, 64, 128),
    "kv_share": (1.0,),
    "policy": ("evenflow-throughput", "evenflow-balanced"),
}
"""Of the knobs that nobody named. Of the policies one fills its steps, the other keeps them short."""


@dataclass(frozen=True, slots=True)
class Axis:
    name: str
    values: tuple[Value, ...]

    @property
    def is_ordered(self) -> bool:
        """Whether its values are numbers, so that a curve over them means something."""
        return all(isinstance(value, int | float) and not isinstance(value, bool) for value in self.values)


@dataclass(frozen=True, slots=True)
class Cell:
    """One configuration: a value for every axis, in the order of the axes."""

    values: tuple[tuple[str, Value], ...]

    def __getitem__(self, name: str) -> Value:
        return dict(self.values)[name]

    @property
    def key(self) -> str:
        """What a journal knows it by: the same text for the same configuration."""
        return " ".join(f"{name}={shown(value)}" for name, value in self.values)

    def with_value(self, name: str, value: Value) -> "Cell":
        return Cell(tuple((each, value if each == name else old) for each, old in self.values))


@dataclass(frozen=True, slots=True)
class Space:
    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        if len(self) > MAX_CELLS:
            raise ConfigError(f"the grid has {len(self)} cells; at most {MAX_CELLS} are tried, so give fewer values")

    def __len__(self) -> int:
        return prod(len(axis.values) for axis in self.axes)

    def cells(self) -> Iterator[Cell]:
        names = [axis.name for axis in self.axes]
        for values in itertools.product(*(axis.values for axis in self.axes)):
            yield Cell(tuple(zip(names, values, strict=True)))

    @property
    def varied(self) -> tuple[Axis, ...]:
        return tuple(axis for axis in self.axes if len(axis.values) > 1)

    def label(self, cell: Cell) -> str:
        """Only what tells it from the other cells."""
        names = [axis.name for axis in self.varied]
        return ", ".join(f"{_SHORT.get(name, name)} {shown(cell[name])}" for name in names) or cell.key


_SHORT = {"max_num_batched_tokens": "tokens", "max_num_seqs": "seqs", "kv_share": "KV", "policy": "policy"}


def shown(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def make_space(vary: Sequence[str] = (), file: Path | None = None) -> Space:
    """What the command line says of a knob replaces what the file says of it. Raises ConfigError."""
    chosen: dict[str, tuple[Value, ...]] = dict(DEFAULTS)
    if file is not None:
        chosen |= read_space(file)
    for text in vary:
        name, equals, values = text.partition("=")
        if not equals:
            raise ConfigError(f"a knob is varied as name=value,value, not {text!r}")
        chosen[name.strip()] = _values(name.strip(), [literal(each.strip()) for each in values.split(",")])
    return Space(tuple(Axis(name, values) for name, values in chosen.items()))


def read_space(path: Path) -> dict[str, tuple[Value, ...]]:
    try:
        table = tomllib.loads(read_small_text(path, MAX_FILE_BYTES))
    except OSError as error:
        raise ConfigError(f"cannot read the grid {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is no grid: {error}") from error
    flat: dict[str, object] = {}
    for name, value in table.items():
        # TOML writes policy.interleave = [...] as a table, and "policy.interleave" as a name.
        if isinstance(value, dict):
            flat |= {f"{name}.{field}": each for field, each in value.items()}
        else:
            flat[name] = value
    try:
        return {name: _values(name, value if isinstance(value, list) else [value]) for name, value in flat.items()}
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _values(name: str, values: Sequence[object]) -> tuple[Value, ...]:
    kind = _ENGINE_KNOBS.get(name)
    if kind is None and not (name.startswith(POLICY_FIELD) and len(name) > len(POLICY_FIELD)):
        raise ConfigError(f"there is no knob {name!r}; they are {', '.join(_ENGINE_KNOBS)} and policy.FIELD")
    if not values:
        raise ConfigError(f"{name} has no value to try")
    found = tuple(_checked(name, kind, value) for value in values)
    if len(set(found)) < len(found):
        raise ConfigError(f"{name} has a value twice: {', '.join(map(shown, found))}")
    return found


def _checked(name: str, kind: type | None, value: object) -> Value:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    legal = isinstance(value, int | float | str) if kind is None else type(value) is kind
    if not legal or value == "":
        raise ConfigError(f"{name} cannot be {value!r}")
    assert isinstance(value, int | float | str)
    if name == "kv_share" and not (isinstance(value, float) and 0.0 < value <= 1.0):
        raise ConfigError(f"kv_share must be above 0 and at most 1, not {value}")
    if kind is int and not (isinstance(value, int) and value >= 1):
        raise ConfigError(f"{name} must be at least 1, not {value}")
    return value
