"""A log for other tools: as JSON lines again, or as one table.

The table has a row per event and a column per field of any event; where an event has no such field, the cell is empty.
What is no plain value (who was scheduled, doors, settings) is JSON text in its cell. CSV and Parquet have the same
columns. Parquet needs pyarrow, and knows each column's type.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Protocol, get_args

import msgspec

from evenflow.core.errors import ConfigError
from evenflow.core.events import Event
from evenflow.observe.log import EventLogWriter, LogError

Value = float | int | str | bool | None
FORMATS = (".jsonl", ".csv", ".parquet")


def _column_type(annotation: object) -> type:
    """float, int or bool for these, str for everything that is written as text."""
    if annotation in (float, int, bool):
        assert isinstance(annotation, type)
        return annotation
    return str


def _columns() -> dict[str, type]:
    found: dict[str, type] = {"log": str, "event": str}
    for event_class in get_args(Event):
        for name, kind in event_class.__annotations__.items():
            column_type = _column_type(kind)
            assert found.setdefault(name, column_type) is column_type, name
    return found


COLUMNS: Mapping[str, type] = _columns()
_encode = msgspec.json.Encoder().encode


def row_of(event: Event, log: str) -> dict[str, Value]:
    """`log` says which file the event is from."""
    row: dict[str, Value] = {"log": log, "event": type(event).__name__}
    for name, value in zip(event._fields, event, strict=True):
        row[name] = _value(value)
    return row


def _value(value: object) -> Value:
    match value:
        case float() | int() | str():  # bool is an int
            return value
        case Enum():
            return str(value.value)
        case _:
            return _encode(value).decode()


class Table(Protocol):
    def add(self, row: Mapping[str, Value], /) -> None: ...

    def close(self) -> None: ...


class CsvTable:
    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", newline="")
        self._writer = csv.DictWriter(self._file, list(COLUMNS), restval="")
        self._writer.writeheader()

    def add(self, row: Mapping[str, Value], /) -> None:
        self._writer.writerow(row)

    def close(self) -> None:
        self._file.close()


def export(logs: Iterable[tuple[str, Mapping[str, str], Iterable[Event]]], path: Path) -> int:
    """Write logs, each a name, its settings and its events, in the format that the file's name ends with.

    The file is there once it is whole. Returns the number of events; raises LogError if it cannot be written, and
    ConfigError for a format that is none or needs what is not installed.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        count = _write(logs, partial, path.suffix)
        partial.replace(path)
    except OSError as error:
        raise LogError(f"cannot write {path}: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)
    return count


def _write(logs: Iterable[tuple[str, Mapping[str, str], Iterable[Event]]], path: Path, suffix: str) -> int:
    count = 0
    if suffix == ".jsonl":
        for _, settings, events in logs:  # there is one: a log has one clock
            with EventLogWriter(path, settings=settings.items()) as log:
                for event in events:
                    log.write((event,))
                    count += 1
        return count
    table = _table(path, suffix)
    try:
        for row in _rows(logs):
            table.add(row)
            count += 1
    finally:
        table.close()
    return count


def _rows(logs: Iterable[tuple[str, Mapping[str, str], Iterable[Event]]]) -> Iterator[Mapping[str, Value]]:
    for name, _, events in logs:
        for event in events:
            yield row_of(event, name)


def _table(path: Path, suffix: str) -> Table:
    if suffix == ".csv":
        return CsvTable(path)
    if suffix != ".parquet":
        raise ConfigError(f"a log is exported to {', '.join(FORMATS)}; the file's name says to which, not {suffix!r}")
    try:
        # By name: an extra that most do not have.
        parquet = import_module("evenflow.observe.log_parquet")
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise ConfigError("Parquet needs pyarrow: pip install 'evenflow[parquet]', or export to .csv") from error
    table: Table = parquet.ParquetTable(path, COLUMNS)
    return table
