"""Trace files: what is read, and what a broken one is told."""

import gzip
import io
from importlib import resources
from pathlib import Path

import pytest

from evenflow.workload.formats import Reading, azure_excerpt, parse_trace, read_trace
from evenflow.workload.trace import Trace, TraceError, TraceRequest

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
ROWS = ["2023-11-16 18:15:46.6805900,374,44", "2023-11-16 18:15:50.9951690,396,109"]


def parse(*lines: str) -> Trace:
    return parse_trace(io.StringIO("\n".join(lines)), "some.csv")


def test_azure_rows_are_read_with_times_from_the_first_row_on() -> None:
    trace = parse(HEADER, *ROWS)
    assert trace.format_name == "azure"
    assert trace.requests == (TraceRequest(0.0, 374, 44), TraceRequest(4.314579, 396, 109))


def test_columns_are_found_by_name_not_by_position() -> None:
    trace = parse("GeneratedTokens,model,TIMESTAMP,ContextTokens", "44,x,2023-11-16 18:15:46.6805900,374")
    assert trace.requests == (TraceRequest(0.0, 374, 44),)


def test_six_digits_and_a_zone_are_read_too() -> None:
    trace = parse(HEADER, "2024-05-10 00:00:00.009930+00:00,2162,5", "2024-05-10 00:00:01.009930+00:00,2399,6")
    assert trace.requests[1].arrival_seconds == 1.0


def test_blank_lines_windows_line_ends_and_a_byte_order_mark_do_no_harm() -> None:
    assert parse("\ufeff" + HEADER + "\r", ROWS[0] + "\r", "\r", ROWS[1]) == parse(HEADER, *ROWS)


def test_rows_read_are_rows_kept_plus_rows_dropped() -> None:
    trace = parse(HEADER, ROWS[0], "2023-11-16 18:15:47,0,5", "2023-11-16 18:15:48,5,0", ROWS[1])
    assert trace.num_rows == 4
    assert len(trace.requests) == 2
    assert trace.dropped == (("no prompt or no output tokens", 2),)


def test_a_limit_reads_the_head_only() -> None:
    trace = parse_trace(io.StringIO("\n".join([HEADER, ROWS[0], "not,a,row"])), "some.csv", Reading(limit=1))
    assert trace.num_rows == 1


def test_a_file_may_be_compressed(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress("\r\n".join([HEADER, *ROWS]).encode()))
    assert read_trace(path).requests == parse(HEADER, *ROWS).requests


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([HEADER, "2023-11-16 18:15:46,x,44"], "some.csv line 2, column ContextTokens: 'x' is not a number of tokens"),
        ([HEADER, "2023-11-16 18:15:46,5,-4"], "some.csv line 2, column GeneratedTokens: '-4' is not a number"),
        ([HEADER, "2023-11-16 18:15:46,5.5,4"], "some.csv line 2, column ContextTokens: '5.5' is not a number"),
        ([HEADER, "2023-11-16 18:15:46,٣,4"], "some.csv line 2, column ContextTokens: '٣' is not a number"),
        ([HEADER, "2023-11-16 18:15:46," + "9" * 5000 + ",4"], "column ContextTokens: 999"),
        ([HEADER, "yesterday,5,4"], "some.csv line 2, column TIMESTAMP: 'yesterday' is not a date and time"),
        ([HEADER, ROWS[1], ROWS[0]], "line 3, column TIMESTAMP: is 4.314579 s before the line above; sort the file"),
        ([HEADER, ROWS[0], "2023-11-16 19:00:00+00:00,5,4"], "line 3, column TIMESTAMP: has a time zone where others"),
        ([HEADER, "2023-11-16 18:15:46,5"], "some.csv line 2: 2 columns where the header has 3"),
        (["timestamp,words", "1,2"], "some.csv line 1: no known trace format has these columns (timestamp, words)"),
        (["a,a", "1,2"], "some.csv line 1: a column name comes twice"),
        ([HEADER], "some.csv has a header but no rows"),
        ([""], "some.csv is empty"),
        ([HEADER, "x" * 200_000], "some.csv line 2: is not CSV"),
    ],
)
def test_a_broken_file_is_told_where_and_what(lines: list[str], message: str) -> None:
    with pytest.raises(TraceError) as caught:
        parse(*lines)
    assert message in str(caught.value)


def test_a_truncated_gzip_says_how_far_it_could_be_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    many = [HEADER, *[f"2023-11-16 18:15:46.{i:06},{i},{i * 7 % 91}" for i in range(1, 20_000)]]
    path.write_bytes(gzip.compress("\n".join(many).encode())[:-100])
    with pytest.raises(TraceError, match=r"trace\.csv\.gz after line 1\d{4}: cannot be read further"):
        read_trace(path)


def test_what_is_not_text_or_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(HEADER.encode() + b"\n\xff\xfe")
    with pytest.raises(TraceError, match=r"trace\.csv after line 0: is not UTF-8 text"):
        read_trace(path)
    with pytest.raises(TraceError, match=r"cannot read .*missing\.csv"):
        read_trace(tmp_path / "missing.csv")


def test_the_excerpt_that_comes_with_evenflow_has_its_200_rows() -> None:
    trace = azure_excerpt()
    assert (trace.num_rows, len(trace.requests)) == (200, 200)
    assert trace.requests[0] == TraceRequest(0.0, 374, 44)
    assert trace.requests[-1] == TraceRequest(61.263537, 1143, 409)


def test_the_excerpt_comes_with_its_notice() -> None:
    notice = resources.files("evenflow.workload").joinpath("data", "NOTICE").read_text(encoding="utf-8")
    assert all(words in notice for words in ("CC-BY-4.0", "Azure Public Dataset", "Splitwise", "first 200 rows"))
