"""A cost as a file: strict JSON, so that a stranger's file can be wrong in no silent way.

A measured cost is of one machine and one version of the engine. On another it is refused, unless it is wanted all the
same; then the cost says in its notes what differs, and so does every report made with it.
"""

from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec

from evenflow.core.errors import EvenflowError
from evenflow.files.file_kind import FileKind, kind_of_head, mistaken
from evenflow.files.whole_file import write_whole
from evenflow.simulate.cost import HULL_FEATURES, Bounds, Drift, Identity, Kind, Knot, Quality, Spread, StepCost
from evenflow.simulate.levels import LEVELS
from evenflow.simulate.machine import this_engine, this_machine

KIND = FileKind.COST.value
SCHEMA_VERSION = 1
MAX_FILE_BYTES = 1 << 20
MAX_KNOTS = 64
_MAX_SECONDS = 1e6
_MOST_FACTOR = 1e3


class CostError(EvenflowError):
    """A cost cannot be read, written or fitted; the message names the file, and what is wrong."""


class _Identity(msgspec.Struct, forbid_unknown_fields=True):
    kind: Kind
    machine: str
    model: str
    engine: str
    description: str
    settings: dict[str, str]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    kind: str
    schema_version: int
    identity: _Identity
    fixed_seconds: float
    weight_seconds: float
    token_seconds: float
    sharpness: float
    request_seconds: float
    prefill_context_seconds: float
    decode_context_seconds: float
    gap_seconds: float
    knots: list[Knot]
    spreads: list[Spread]
    hull: list[Bounds]
    qualities: list[Quality]
    kv_tokens: int | None
    swap_block_seconds: float | None
    block_size: int | None
    notes: list[str]
    prefill_read_seconds: float = 0.0
    drift: Drift | None = None


class _Head(msgspec.Struct):
    kind: str = ""
    schema_version: int = 0


_NOT_NEGATIVE = (
    "fixed_seconds",
    "weight_seconds",
    "token_seconds",
    "request_seconds",
    "prefill_context_seconds",
    "decode_context_seconds",
    "prefill_read_seconds",
    "gap_seconds",
)
_SAME = (*_NOT_NEGATIVE, "sharpness", "drift", "kv_tokens", "swap_block_seconds", "block_size")
_LISTS = ("knots", "spreads", "hull", "qualities", "notes")


def save_cost(path: Path, cost: StepCost) -> None:
    identity = cost.identity
    # Any: fields of several types, each to the field of its own name.
    values: dict[str, Any] = {name: getattr(cost, name) for name in _SAME}
    values |= {name: list(getattr(cost, name)) for name in _LISTS}
    file = _File(
        kind=KIND,
        schema_version=SCHEMA_VERSION,
        identity=_Identity(
            identity.kind,
            identity.machine,
            identity.model,
            identity.engine,
            identity.description,
            dict(identity.settings),
        ),
        **values,
    )
    try:
        write_whole(path, msgspec.json.format(msgspec.json.encode(file), indent=1) + b"\n")
    except OSError as error:
        raise CostError(f"cannot write the cost file {path}: {error.strerror}") from error


def load_cost(path: Path, *, force: bool = False) -> StepCost:
    """Raises CostError for what is no cost file, and for a measured one of another machine or engine unless forced."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise CostError(f"cannot read the cost file {path}: {error.strerror}") from error
    return parse_cost(data, str(path), force=force)


def parse_cost(data: bytes, name: str, *, force: bool = False) -> StepCost:
    if (said := mistaken(kind_of_head(data), FileKind.COST, name)) is not None:
        raise CostError(said)
    if len(data) > MAX_FILE_BYTES:
        raise CostError(f"{name} holds more than {MAX_FILE_BYTES} bytes; no cost file does")
    try:
        head = msgspec.json.decode(data, type=_Head)
        if head.kind != KIND:
            raise CostError(f"{name} is not a cost file; `evenflow calibrate` writes one")
        if head.schema_version != SCHEMA_VERSION:
            raise CostError(f"{name} has schema version {head.schema_version}; this evenflow reads {SCHEMA_VERSION}")
        file = msgspec.json.decode(data, type=_File)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise CostError(f"{name} is not a cost file: {error}") from error
    _check(file, name)
    values: dict[str, Any] = {field: getattr(file, field) for field in _SAME}  # Any: as above
    values |= {field: tuple(getattr(file, field)) for field in _LISTS}
    cost = StepCost(
        identity=Identity(
            file.identity.kind,
            file.identity.machine,
            file.identity.model,
            file.identity.engine,
            file.identity.description,
            tuple(file.identity.settings.items()),
        ),
        **values,
    )
    return _for_here(cost, name, force=force)


def _check(file: _File, name: str) -> None:
    """What the types cannot say. JSON has no infinities, but 1e999 reads as one."""
    for field in _NOT_NEGATIVE:
        if not 0.0 <= getattr(file, field) <= _MAX_SECONDS:
            raise CostError(f"{name}: {field} must be seconds between 0 and {_MAX_SECONDS:g}")
    if not 1.0 <= file.sharpness <= 64.0:
        raise CostError(f"{name}: sharpness must be between 1 and 64, not {file.sharpness:g}")
    if file.weight_seconds + file.token_seconds + file.fixed_seconds <= 0.0:
        raise CostError(f"{name}: a step would take no time at all; one of fixed, weight and token_seconds is above 0")
    if len(file.knots) > MAX_KNOTS:
        raise CostError(f"{name}: {len(file.knots)} knots are more than {MAX_KNOTS}")
    places = [knot.log2_tokens for knot in file.knots]
    if places != sorted(set(places)):
        raise CostError(f"{name}: the knots must come in order of log2_tokens")
    for knot in file.knots:
        if not (0.0 <= knot.log2_tokens <= 40.0 and abs(knot.seconds) <= _MAX_SECONDS):
            raise CostError(f"{name}: knot {tuple(knot)} is beyond all sense")
    if len({spread.regime for spread in file.spreads}) < len(file.spreads):
        raise CostError(f"{name}: spreads has a kind of step twice")
    for spread in file.spreads:
        if not 0.0 <= spread.sigma <= 3.0:
            raise CostError(f"{name}: the sigma of {spread.regime.value} steps must be between 0 and 3")
        if spread.factors and (
            len(spread.factors) != len(LEVELS) or not all(0.0 < factor <= _MOST_FACTOR for factor in spread.factors)
        ):
            raise CostError(
                f"{name}: the factors of {spread.regime.value} steps must be {len(LEVELS)} numbers above 0 and up to "
                f"{_MOST_FACTOR:g}"
            )
    if file.drift is not None and not (0.0 <= file.drift.share < 1.0 and 1.0 <= file.drift.num_steps <= 1e4):
        raise CostError(f"{name}: the drift's share must be from 0 to below 1, and its num_steps between 1 and 10000")
    for bounds in file.hull:
        if bounds.feature not in HULL_FEATURES or not (isfinite(bounds.low) and isfinite(bounds.high)):
            raise CostError(f"{name}: hull of {bounds.feature!r}: known are {', '.join(HULL_FEATURES)}, within numbers")
        if bounds.low > bounds.high:
            raise CostError(f"{name}: hull of {bounds.feature}: from {bounds.low:g} to {bounds.high:g} is nothing")
    if file.swap_block_seconds is not None and not 0.0 <= file.swap_block_seconds <= _MAX_SECONDS:
        raise CostError(f"{name}: swap_block_seconds must be between 0 and {_MAX_SECONDS:g}")
    for field in ("kv_tokens", "block_size"):
        value = getattr(file, field)
        if value is not None and not 1 <= value <= 2**40:
            raise CostError(f"{name}: {field} must be at least 1, not {value}")


def _for_here(cost: StepCost, name: str, *, force: bool) -> StepCost:
    if cost.identity.kind is not Kind.MEASURED:
        return cost  # it is of other hardware on purpose, and says so
    differences = [
        f"{what} is {theirs!r} there and {ours!r} here"
        for what, theirs, ours in (
            ("the machine", cost.identity.machine, this_machine()),
            ("the engine's version", cost.identity.engine, this_engine()),
        )
        if theirs != ours
    ]
    if not differences:
        return cost
    said = "; ".join(differences)
    if not force:
        raise CostError(
            f"{name} was measured elsewhere: {said}. Calibrate here (`evenflow calibrate`), or use it all the same "
            "with --force"
        )
    return replace(cost, notes=(*cost.notes, f"forced, although it was measured elsewhere: {said}"))
