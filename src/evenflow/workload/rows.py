"""Rows of a trace file, by the names of their columns: CSV with a header, JSON lines, or one JSON array; .gz unpacked.

What is read here comes from strangers: lines, files and numbers have limits, and every error names the file, the line
and the column.
"""

import csv
import gzip
import io
import math
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import TextIO

import msgspec

from evenflow.workload.trace import TraceError

MAX_TOKENS = 100_000_000
MAX_LINE_CHARS = 16 * 2**20
MAX_ARRAY_CHARS = 2**30
MAX_LINES = 50_000_000
_SHOWN_CHARS = 80


@dataclass(frozen=True, slots=True)
class Row:
    """One data row by column name; a cell is text in CSV, any JSON value elsewhere. Its errors know where they are."""

    source: str
    line: int
    cells: Mapping[str, object]

    def error(self, column: str, message: str) -> TraceError:
        return TraceError(f"{self.source} line {self.line}, column {column}: {message}")

    def has(self, column: str) -> bool:
        return self.cells.get(column) not in (None, "")

    def count(self, column: str) -> int:
        """A number of tokens. 12 and "12" and 12.0 are; a fraction is not."""
        value = self._value(column)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        text = value.strip() if isinstance(value, str) else str(value)
        if isinstance(value, bool) or not (text.isascii() and text.isdigit()):
            raise self.error(column, f"{text[:_SHOWN_CHARS]!r} is not a number of tokens (0, 1, 2, ...)")
        # Tested by length first: int() of a very long text is slow.
        if len(text) > len(str(MAX_TOKENS)) or int(text) > MAX_TOKENS:
            raise self.error(column, f"{text[:_SHOWN_CHARS]} tokens are more than any model takes ({MAX_TOKENS})")
        return int(text)

    def number(self, column: str) -> float:
        value = self._value(column)
        try:
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise ValueError
            number = float(value)
        except (ValueError, OverflowError):
            raise self.error(column, f"{str(value)[:_SHOWN_CHARS]!r} is not a number") from None
        if not math.isfinite(number):
            raise self.error(column, f"{number} is not a time")
        if number < 0.0:
            raise self.error(column, f"{number} is negative; times count from the start of the trace or of an epoch")
        return number

    def instant(self, column: str) -> datetime:
        """With the zone that the text has, if it has one."""
        value = str(self._value(column)).strip()
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            shown = value[:_SHOWN_CHARS]
            raise self.error(column, f"{shown!r} is not a date and time like 2023-11-16 18:15:46") from None

    def text(self, column: str) -> str:
        """A label, or a prompt."""
        value = self._value(column)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self.error(column, f"{str(value)[:_SHOWN_CHARS]!r} is not text")
        return str(value)

    def ids(self, column: str) -> tuple[int, ...]:
        value = self._value(column)
        if not isinstance(value, list) or not all(type(each) is int for each in value):
            raise self.error(column, f"{str(value)[:_SHOWN_CHARS]} is not a list of whole numbers")
        return tuple(value)

    def _value(self, column: str) -> object:
        value = self.cells.get(column)
        if value is None:
            raise self.error(column, "is missing in this row")
        return value


def check_can_be_read_again(path: Path) -> None:
    """Raises TraceError for a pipe, whose beginning is gone at the second look, or which nobody writes to again."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise TraceError(f"{path} is a pipe or a device, and is read more than once; write it to a file first")


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    check_can_be_read_again(path)
    try:
        file = path.open("rb")
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror}") from error
    with file:
        unpacked = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
        with io.TextIOWrapper(unpacked, encoding="utf-8", newline="") as text:
            yield text


def read_rows(file: TextIO, source: str) -> tuple[frozenset[str], Iterator[Row]]:
    """The columns (of the header, or of the first object), and every row."""
    lines = _lines(file, source)
    first = next((numbered for numbered in lines if numbered[1].strip("\ufeff \t\r\n")), None)
    if first is None:
        raise TraceError(f"{source} is empty; a trace begins with a line of column names, or is JSON")
    lines = chain([first], lines)
    match first[1].lstrip("\ufeff \t")[:1]:
        case "{":
            rows = _json_lines(lines, source)
        case "[":
            rows = _json_array(lines, source)
        case _:
            return _csv(lines, source)
    head = next(rows, None)
    if head is None:
        raise TraceError(f"{source} has no rows")
    return frozenset(head.cells), chain([head], rows)


def _lines(file: TextIO, source: str) -> Iterator[tuple[int, str]]:
    """Numbered from 1."""
    number = 0
    try:
        while line := file.readline(MAX_LINE_CHARS + 1):
            number += 1
            if number > MAX_LINES:
                raise TraceError(f"{source} has more than {MAX_LINES} lines; take a part of it")
            if len(line) > MAX_LINE_CHARS:
                raise TraceError(f"{source} line {number}: is longer than {MAX_LINE_CHARS} characters")
            yield number, line
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{source} after line {number}: cannot be read further ({error})") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{source} after line {number}: is not UTF-8 text") from error


def _csv(lines: Iterator[tuple[int, str]], source: str) -> tuple[frozenset[str], Iterator[Row]]:
    number, header = next(lines)
    try:
        names = [name.strip() for name in next(csv.reader([header.lstrip("\ufeff")]))]
    except csv.Error as error:
        raise TraceError(f"{source} line {number}: is not CSV ({error})") from error
    if len(set(names)) < len(names):
        raise TraceError(f"{source} line {number}: a column name comes twice")
    return frozenset(names), _csv_rows(names, lines, source)


def _csv_rows(names: list[str], lines: Iterator[tuple[int, str]], source: str) -> Iterator[Row]:
    line = 1

    def texts() -> Iterator[str]:
        nonlocal line
        for number, text in lines:
            line = number
            yield text

    reader = csv.reader(texts())
    try:
        for cells in reader:
            if not cells:
                continue  # a blank line
            if len(cells) != len(names):
                raise TraceError(f"{source} line {line}: {len(cells)} columns where the header has {len(names)}")
            yield Row(source, line, dict(zip(names, cells, strict=True)))
    except csv.Error as error:
        raise TraceError(f"{source} line {line}: is not CSV ({error})") from error


def _json_lines(lines: Iterator[tuple[int, str]], source: str) -> Iterator[Row]:
    decoder = msgspec.json.Decoder(dict[str, object])
    for number, line in lines:
        text = line.strip("\ufeff \t\r\n")
        if not text:
            continue
        try:
            yield Row(source, number, decoder.decode(text))
        except (msgspec.MsgspecError, RecursionError) as error:
            raise TraceError(f"{source} line {number}: is not a JSON object ({error})") from error


def _json_array(lines: Iterator[tuple[int, str]], source: str) -> Iterator[Row]:
    """Of objects. Lines say nothing here, so `line` counts the objects."""
    text = io.StringIO()
    for _, line in lines:
        if text.tell() + len(line) > MAX_ARRAY_CHARS:
            raise TraceError(f"{source} is a JSON array of more than {MAX_ARRAY_CHARS} characters; use JSON lines")
        text.write(line)
    try:
        objects = msgspec.json.decode(text.getvalue().lstrip("\ufeff"), type=list[dict[str, object]])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise TraceError(f"{source}: is not a JSON array of objects ({error})") from error
    for number, cells in enumerate(objects, start=1):
        yield Row(source, number, cells)
