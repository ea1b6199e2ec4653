"""Reading a trace file: its format is recognised by the names of its columns, never by position or file name.

Nothing is guessed. Rows read = rows kept + rows dropped; times that go backwards, are negative or imply a rate that no
server sees are refused with the line that shows it.
"""

import difflib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import TextIO

from evenflow.workload.columns import ColumnNames
from evenflow.workload.format_table import TOKEN_FORMATS, Clock, CountTokens, Format
from evenflow.workload.format_text import TEXT_COLUMNS, text_formats
from evenflow.workload.plausible import check_times
from evenflow.workload.rows import Row, open_text, read_rows
from evenflow.workload.trace import Trace, TraceError, TraceRequest

_HEAD_CHARS = 80
MAX_ROWS = 20_000_000
"""Some 5 GB of memory. A packed file of some megabytes could hold more."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read a file beyond what it says itself.

    `limit` stops after that many rows. `time_unit` overrides the format's. `count_tokens` is needed for text.
    """

    limit: int | None = None
    columns: ColumnNames = ColumnNames()
    time_unit: str | None = None
    count_tokens: CountTokens | None = None


def read_trace(path: Path, reading: Reading = Reading()) -> Trace:
    with open_text(path) as file:
        return parse_trace(file, str(path), reading)


def parse_trace(file: TextIO, source: str, reading: Reading = Reading()) -> Trace:
    """A request of no prompt or no output tokens cannot be sent; such rows are dropped and counted."""
    columns, rows = read_rows(file, source)
    trace_format = _format_of(columns, source, reading)
    clock = trace_format.new_clock(reading.time_unit)
    kept: list[TraceRequest] = []
    lines: list[int] = []
    num_rows = 0
    for row, request in islice(_requests(rows, trace_format, clock), min(reading.limit or MAX_ROWS + 1, MAX_ROWS + 1)):
        num_rows += 1
        if num_rows > MAX_ROWS:
            raise TraceError(f"{source} has more than {MAX_ROWS} rows; read only the first of them with --limit")
        if request.num_prompt_tokens > 0 and request.num_output_tokens > 0:
            kept.append(reading.columns.labelled(request, row))
            lines.append(row.line)
    if not num_rows:
        raise TraceError(f"{source} has a header but no rows")
    if not kept:
        raise TraceError(f"{source}: none of its {num_rows} rows has both a prompt and an output")
    num_empty = num_rows - len(kept)
    dropped = (("no prompt or no output tokens", num_empty),) if num_empty else ()
    if clock is None:
        return Trace(source, trace_format.name, tuple(kept), num_rows, dropped, None)
    check_times([request.arrival_seconds for request in kept], lines, source)
    # The first row may have been dropped; the trace begins with the first request that can be sent.
    start = kept[0].arrival_seconds
    requests = tuple(replace(request, arrival_seconds=request.arrival_seconds - start) for request in kept)
    return Trace(source, trace_format.name, requests, num_rows, dropped, reading.time_unit or trace_format.time_unit)


def _requests(rows: Iterator[Row], trace_format: Format, clock: Clock | None) -> Iterator[tuple[Row, TraceRequest]]:
    """With times from the first row on, which never go backwards."""
    start: float | None = None
    previous = 0.0
    for row in rows:
        request = trace_format.request(row)
        if clock is not None:
            time = clock(row)
            start = time if start is None else start
            arrival = time - start
            if arrival < previous:
                column = trace_format.time_column or "TIMESTAMP"
                raise row.error(column, f"is {previous - arrival:.6f} s before the line above; sort the file by time")
            previous = arrival
            request = replace(request, arrival_seconds=arrival)
        yield row, request


def _format_of(columns: frozenset[str], source: str, reading: Reading) -> Format:
    named = reading.columns
    if missing := named.used - columns:
        raise TraceError(f"{source} has no column {_list(sorted(missing))}; it has {_list(sorted(columns))}")
    if named.whole:
        return _named_format(named)
    for trace_format in TOKEN_FORMATS:
        if trace_format.columns <= columns:
            return trace_format
    if any(needed <= columns for needed in TEXT_COLUMNS):
        if reading.count_tokens is None:
            raise TraceError(f"{source} holds text; its tokens can only be counted with a tokenizer")
        return next(form for form in text_formats(reading.count_tokens) if form.columns <= columns)
    raise TraceError(_unknown(columns, source))


def _named_format(named: ColumnNames) -> Format:
    assert named.input is not None
    assert named.output is not None
    prompt, output = named.input, named.output
    return Format(
        "named columns",
        named.used,
        "s" if named.arrival is not None else None,
        named.arrival,
        lambda row: TraceRequest(0.0, row.count(prompt), row.count(output)),
    )


def _unknown(columns: frozenset[str], source: str) -> str:
    """Names the format that comes nearest, and what is wrong for it."""
    found = _list(sorted(columns))
    best = max(TOKEN_FORMATS, key=lambda form: (len(form.columns & columns) / len(form.columns), len(form.columns)))
    if 2 * len(best.columns & columns) >= len(best.columns):
        wrong = [_nearest(name, columns) for name in sorted(best.columns - columns)]
        return f"{source} line 1: looks like {best.name}, but {'; '.join(wrong)} (columns: {found})"
    known = ", ".join(form.name for form in TOKEN_FORMATS)
    return (
        f"{source} line 1: no known trace format has these columns ({found}). Known are {known}; or name its columns "
        "with --columns arrival=...,input=...,output=..."
    )


def _nearest(name: str, columns: frozenset[str]) -> str:
    close = difflib.get_close_matches(name, columns, n=1)
    return f"column {name} is missing" + (f" (is {close[0]} meant?)" if close else "")


def _list(names: Sequence[str]) -> str:
    return ", ".join(names)[:_HEAD_CHARS]


def azure_excerpt() -> Trace:
    """The first 200 requests of the Azure 2023 conversation trace, which come with evenflow (data/NOTICE)."""
    name = "azure_conv_excerpt.csv"
    data = resources.files("evenflow.workload").joinpath("data", name).read_bytes()
    return parse_trace(io.StringIO(data.decode("utf-8"), newline=""), name)
