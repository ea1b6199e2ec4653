"""Trace files as their owners publish them, recognised by the names of their columns, never by position.

A new format is a row of FORMATS: its columns, and how one row becomes a request. Files ending in .gz are unpacked.
Errors name the file, the line and the column.
"""

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import TextIO

from evenflow.workload.trace import Trace, TraceError, TraceRequest

MAX_TOKENS = 100_000_000
_HEAD_CHARS = 80


@dataclass(frozen=True, slots=True)
class Row:
    """One data row by column name. Its errors know where they are."""

    source: str
    line: int
    cells: Mapping[str, str]

    def error(self, column: str, message: str) -> TraceError:
        return TraceError(f"{self.source} line {self.line}, column {column}: {message}")

    def count(self, column: str) -> int:
        text = self.cells[column].strip()
        if not (text.isascii() and text.isdigit()):
            raise self.error(column, f"{text[:_HEAD_CHARS]!r} is not a number of tokens (0, 1, 2, ...)")
        # Tested by length first: int() of a very long text is slow.
        if len(text) > len(str(MAX_TOKENS)) or int(text) > MAX_TOKENS:
            raise self.error(column, f"{text[:_HEAD_CHARS]} tokens are more than any model takes ({MAX_TOKENS})")
        return int(text)

    def instant(self, column: str) -> datetime:
        text = self.cells[column].strip()
        try:
            return datetime.fromisoformat(text)
        except ValueError as error:
            raise self.error(
                column, f"{text[:_HEAD_CHARS]!r} is not a date and time like 2023-11-16 18:15:46"
            ) from error


@dataclass(frozen=True, slots=True)
class Format:
    """`read` turns rows into requests whose arrival is relative to the first row. Other columns are not looked at."""

    name: str
    columns: frozenset[str]
    read: Callable[[Iterator[Row]], Iterator[TraceRequest]]


def _azure(rows: Iterator[Row]) -> Iterator[TraceRequest]:
    """TIMESTAMP has 7 fractional digits and no zone, or 6 and +00:00; fromisoformat reads both, to the microsecond."""
    first: datetime | None = None
    previous = 0.0
    for row in rows:
        time = row.instant("TIMESTAMP")
        first = first or time
        if (time.tzinfo is None) != (first.tzinfo is None):
            raise row.error("TIMESTAMP", "has a time zone where others have none, or the other way round")
        arrival = (time - first).total_seconds()
        if arrival < previous:
            raise row.error("TIMESTAMP", f"is {previous - arrival:.6f} s before the line above; sort the file by time")
        previous = arrival
        yield TraceRequest(arrival, row.count("ContextTokens"), row.count("GeneratedTokens"))


FORMATS: tuple[Format, ...] = (Format("azure", frozenset({"TIMESTAMP", "ContextTokens", "GeneratedTokens"}), _azure),)


def read_trace(path: Path, *, limit: int | None = None) -> Trace:
    """A trace file; `limit` stops after that many rows."""
    with _open_text(path) as file:
        return parse_trace(file, str(path), limit=limit)


def parse_trace(file: TextIO, source: str, *, limit: int | None = None) -> Trace:
    """A request of no prompt or no output tokens cannot be sent; such rows are dropped and counted."""
    rows = _rows(file, source)
    trace_format = _recognise(next(rows), source)
    kept: list[TraceRequest] = []
    num_rows = 0
    num_empty = 0
    for request in islice(trace_format.read(rows), limit):
        num_rows += 1
        if request.num_prompt_tokens == 0 or request.num_output_tokens == 0:
            num_empty += 1
        else:
            kept.append(request)
    if not num_rows:
        raise TraceError(f"{source} has a header but no rows")
    dropped = (("no prompt or no output tokens", num_empty),) if num_empty else ()
    return Trace(source, trace_format.name, tuple(kept), num_rows, dropped)


def _recognise(header: Row, source: str) -> Format:
    for trace_format in FORMATS:
        if trace_format.columns <= header.cells.keys():
            return trace_format
    known = "; ".join(f"{f.name}: {', '.join(sorted(f.columns))}" for f in FORMATS)
    found = ", ".join(header.cells)[:_HEAD_CHARS]
    raise TraceError(f"{source} line 1: no known trace format has these columns ({found}). Known are {known}")


def _rows(file: TextIO, source: str) -> Iterator[Row]:
    """The header, and then every row."""
    reader = csv.reader(file)
    line = 0
    try:
        header = next(reader, None)
        if header is None:
            raise TraceError(f"{source} is empty; a trace begins with a line of column names")
        names = [name.strip().removeprefix("\ufeff") for name in header]
        if len(set(names)) < len(names):
            raise TraceError(f"{source} line 1: a column name comes twice")
        yield Row(source, 1, dict.fromkeys(names, ""))
        for cells in reader:
            line = reader.line_num
            if not cells:
                continue  # a blank line
            if len(cells) != len(names):
                raise TraceError(f"{source} line {line}: {len(cells)} columns where the header has {len(names)}")
            yield Row(source, line, dict(zip(names, cells, strict=True)))
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{source} after line {line}: cannot be read further ({error})") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{source} after line {line}: is not UTF-8 text") from error
    except csv.Error as error:
        raise TraceError(f"{source} line {reader.line_num}: is not CSV ({error})") from error


@contextmanager
def _open_text(path: Path) -> Iterator[TextIO]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror}") from error
    with file:
        unpacked = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
        with io.TextIOWrapper(unpacked, encoding="utf-8", newline="") as text:
            yield text


def azure_excerpt() -> Trace:
    """The first 200 requests of the Azure 2023 conversation trace, which come with evenflow (data/NOTICE)."""
    name = "azure_conv_excerpt.csv"
    data = resources.files("evenflow.workload").joinpath("data", name).read_bytes()
    return parse_trace(io.StringIO(data.decode("utf-8"), newline=""), name)
