"""The result file: one JSON document that says what was sent to whom, and when every token came.

It holds the observations, not only what they come to, so that any other figure can be computed from it. Times are
seconds after the run's start; the gaps between chunks are whole microseconds. `.gz` packs it.
"""

import gzip
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path

import msgspec

from evenflow.core.errors import EvenflowError
from evenflow.replay.record import Record
from evenflow.replay.request import Reason, TokenCounts

KIND = "evenflow-replay"
SCHEMA_VERSION = 1
MAX_FILE_BYTES = 4 * 2**30


class ResultError(EvenflowError):
    """A result file cannot be read or written; the message names the file."""


def stem_of(out: Path) -> Path:
    """What OUT.json and OUT.html are named after, whichever of the three was given."""
    for suffix in (".json.gz", ".json", ".html"):
        if out.name.endswith(suffix) and out.name != suffix:
            return out.with_name(out.name.removesuffix(suffix))
    return out


@dataclass(frozen=True, slots=True)
class Result:
    """`began` is a date and time. `target` and `load` are for people, by name; `notes` says what was done to the load,
    `cautions` what a reader must know besides what the records themselves tell.

    `loop_lags` has how late the client's loop was, sorted and thinned to percentiles.
    """

    name: str
    began: str
    version: str
    target: Mapping[str, str]
    load: Mapping[str, str]
    notes: tuple[str, ...]
    open_loop: bool
    warm_up_seconds: float | None
    slo: str | None
    loop_lags: tuple[float, ...]
    gave_up: str | None
    records: tuple[Record, ...] = field(repr=False)
    cautions: tuple[str, ...] = ()


class _Row(msgspec.Struct, array_like=True):
    """A Record, as an array: `request_fields` in the file names the places."""

    request_id: str
    intended: float
    allowed: float | None
    sent: float | None
    finished: float | None
    num_prompt_tokens: int
    max_tokens: int
    num_output_tokens: int | None
    server_prompt_tokens: int | None
    cached_tokens: int | None
    service_class: str | None
    tenant: str | None
    reason: Reason | None
    detail: str | None
    token_counts: TokenCounts | None
    first_chunk: float | None
    chunk_gaps_us: list[int]
    chunk_tokens: list[int] | None  # None is one token each


class _File(msgspec.Struct):
    kind: str
    schema_version: int
    name: str
    began: str
    version: str
    target: dict[str, str]
    load: dict[str, str]
    notes: tuple[str, ...]
    open_loop: bool
    warm_up_seconds: float | None
    slo: str | None
    loop_lags: tuple[float, ...]
    gave_up: str | None
    summary: msgspec.Raw
    request_fields: tuple[str, ...]
    requests: list[_Row]
    cautions: tuple[str, ...] = ()


class _Head(msgspec.Struct):
    kind: str = ""
    schema_version: int = 0


def _row(record: Record) -> _Row:
    gaps = [round((b - a) * 1e6) for a, b in pairwise(record.chunk_times)]
    tokens = None if all(num == 1 for num in record.chunk_tokens) else list(record.chunk_tokens)
    fields = {name: getattr(record, name) for name in _Row.__struct_fields__[:-3]}
    return _Row(**fields, first_chunk=next(iter(record.chunk_times), None), chunk_gaps_us=gaps, chunk_tokens=tokens)


def _record(row: _Row) -> Record:
    times: tuple[float, ...] = ()
    if row.first_chunk is not None:
        times = tuple(
            round(t, 6) for t in accumulate((gap * 1e-6 for gap in row.chunk_gaps_us), initial=row.first_chunk)
        )
    tokens = tuple(row.chunk_tokens) if row.chunk_tokens is not None else (1,) * len(times)
    if len(tokens) != len(times):
        raise msgspec.ValidationError(
            f"request {row.request_id} has {len(times)} chunks but {len(tokens)} token counts"
        )
    fields = {name: getattr(row, name) for name in _Row.__struct_fields__[:-3]}
    return Record(**fields, chunk_times=times, chunk_tokens=tokens)


def write_result(result: Result, summary: object, path: Path) -> None:
    """`summary` is what the run comes to, for whoever reads the file without evenflow."""
    file = _File(
        kind=KIND,
        schema_version=SCHEMA_VERSION,
        name=result.name,
        began=result.began,
        version=result.version,
        target=dict(result.target),
        load=dict(result.load),
        notes=result.notes,
        open_loop=result.open_loop,
        warm_up_seconds=result.warm_up_seconds,
        slo=result.slo,
        loop_lags=result.loop_lags,
        gave_up=result.gave_up,
        summary=msgspec.Raw(msgspec.json.encode(summary)),
        request_fields=_Row.__struct_fields__,
        requests=[_row(record) for record in result.records],
        cautions=result.cautions,
    )
    data = msgspec.json.encode(file)
    try:
        path.write_bytes(gzip.compress(data, 6, mtime=0) if path.suffix == ".gz" else data)
    except OSError as error:
        raise ResultError(f"cannot write {path}: {error.strerror}") from error


def read_result(path: Path) -> Result:
    data = _read(path)
    try:
        head = msgspec.json.decode(data, type=_Head)
        if head.kind != KIND:
            raise ResultError(f"{path} is not the result of a replay")
        if head.schema_version != SCHEMA_VERSION:
            raise ResultError(f"{path} has schema version {head.schema_version}; this evenflow reads {SCHEMA_VERSION}")
        file = msgspec.json.decode(data, type=_File)
        records = tuple(map(_record, file.requests))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ResultError(f"{path} is not a result file: {error}") from error
    return Result(
        name=file.name,
        began=file.began,
        version=file.version,
        target=file.target,
        load=file.load,
        notes=file.notes,
        open_loop=file.open_loop,
        warm_up_seconds=file.warm_up_seconds,
        slo=file.slo,
        loop_lags=file.loop_lags,
        gave_up=file.gave_up,
        records=records,
        cautions=file.cautions,
    )


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            packed = path.suffix == ".gz"
            data = (gzip.GzipFile(fileobj=file) if packed else file).read(MAX_FILE_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ResultError(f"cannot read {path}: {error}") from error
    if len(data) > MAX_FILE_BYTES:
        raise ResultError(f"{path} holds more than {MAX_FILE_BYTES} bytes; no result does")
    return data


def thinned(values: Sequence[float], most: int = 200) -> tuple[float, ...]:
    """Sorted; evenly spaced ranks if there are more, the largest always."""
    ordered = sorted(values)
    if len(ordered) <= most:
        return tuple(ordered)
    return tuple(ordered[round(rank * (len(ordered) - 1) / (most - 1))] for rank in range(most))
