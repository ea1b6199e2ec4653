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
from typing import Annotated

import msgspec

from evenflow.core.errors import EvenflowError
from evenflow.files.file_kind import FileKind, kind_of_head, mistaken
from evenflow.files.whole_file import write_whole
from evenflow.replay.record import Record
from evenflow.replay.request import Reason, TokenCounts

KIND = FileKind.RESULT.value
SCHEMA_VERSION = 1
MAX_FILE_BYTES = 2**30


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


# A timer may be early by its resolution, so what comes first may come just before 0.
_Instant = Annotated[float, msgspec.Meta(ge=-1.0, le=1e9)]
_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**40)]
_Least1 = Annotated[int, msgspec.Meta(ge=1, lt=2**40)]
_ROUNDING_SECONDS = 1e-3


class _Row(msgspec.Struct, array_like=True):
    """A Record, as an array: `request_fields` in the file names the places."""

    request_id: str
    intended: _Instant
    allowed: _Instant | None
    sent: _Instant | None
    finished: _Instant | None
    num_prompt_tokens: _Least1
    max_tokens: _Least1
    num_output_tokens: _Count | None
    server_prompt_tokens: _Count | None
    cached_tokens: _Count | None
    service_class: str | None
    tenant: str | None
    reason: Reason | None
    detail: str | None
    token_counts: TokenCounts | None
    first_chunk: _Instant | None
    chunk_gaps_us: list[_Count]
    chunk_tokens: list[_Count] | None  # None is one token each


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
    warm_up_seconds: Annotated[float, msgspec.Meta(ge=0.0, le=1e9)] | None
    slo: str | None
    loop_lags: tuple[_Instant, ...]
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
    if row.sent is not None and row.reason is None:
        _check_good(row, times)
    fields = {name: getattr(row, name) for name in _Row.__struct_fields__[:-3]}
    return Record(**fields, chunk_times=times, chunk_tokens=tokens)


def _check_good(row: _Row, times: Sequence[float]) -> None:
    """Of a request that went well: figures would be computed from whatever it says."""
    assert row.sent is not None
    if not times or row.finished is None:
        what = "no chunk" if not times else "no end"
        raise msgspec.ValidationError(f"request {row.request_id} has {what}, and no reason why it failed")
    if times[0] < row.sent - _ROUNDING_SECONDS or row.finished < times[-1] - _ROUNDING_SECONDS:
        raise msgspec.ValidationError(
            f"request {row.request_id} was sent at {row.sent:g} s, had chunks from {times[0]:g} to {times[-1]:g} s, "
            f"and ended at {row.finished:g} s; these must be in order"
        )


def _check_all(file: _File) -> None:
    if file.request_fields != _Row.__struct_fields__:
        raise msgspec.ValidationError(f"request_fields must be {', '.join(_Row.__struct_fields__)}, in this order")
    if not file.requests:
        raise msgspec.ValidationError("it has no requests")
    names: set[str] = set()
    for row in file.requests:
        if row.request_id in names:
            raise msgspec.ValidationError(f"request {row.request_id} is there twice")
        names.add(row.request_id)


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
        write_whole(path, gzip.compress(data, 6, mtime=0) if path.suffix == ".gz" else data)
    except OSError as error:
        raise ResultError(f"cannot write {path}: {error.strerror}") from error


def read_result(path: Path) -> Result:
    data = _read(path)
    if (said := mistaken(kind_of_head(data), FileKind.RESULT, str(path))) is not None:
        raise ResultError(said)
    try:
        head = msgspec.json.decode(data, type=_Head)
        if head.kind != KIND:
            raise ResultError(f"{path} is not the result of a replay")
        if head.schema_version != SCHEMA_VERSION:
            raise ResultError(f"{path} has schema version {head.schema_version}; this evenflow reads {SCHEMA_VERSION}")
        file = msgspec.json.decode(data, type=_File)
        _check_all(file)
        records = tuple(map(_record, file.requests))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
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
