"""An event log as a trace."""

import gzip
from collections.abc import Sequence
from pathlib import Path

import pytest

from evenflow.core.events import Arrived, ConfigChanged, Event, Finished
from evenflow.core.request import FinishReason, RequestId
from evenflow.observe.log import EventLogWriter
from evenflow.replay.recorded import open_trace
from evenflow.workload.formats import Reading
from evenflow.workload.trace import TraceError, TraceRequest
from evenflow.workload.trace_file import write_trace
from story import step


def arrived(name: str, time: float, *, prompt: int = 10, tenant: str = "") -> Arrived:
    return Arrived(time, RequestId(name), 14.5, prompt, 99, "f", tenant, "default", 0)


def finished(name: str, output: int) -> Finished:
    return Finished(50.0, 9, RequestId(name), FinishReason.LENGTH, 10, output, 10 + output, 0)


LOG: Sequence[Event] = (
    arrived("b", 12.5, prompt=20, tenant="them"),
    arrived("a", 12.0),
    arrived("c", 13.0),
    arrived("d", 14.0),
    finished("a", 5),
    finished("d", 0),
    finished("b", 7),
)


def written(path: Path, events: Sequence[Event]) -> Path:
    with EventLogWriter(path) as log:
        log.write(events)
    return path


def test_what_a_server_recorded_can_be_replayed(tmp_path: Path) -> None:
    trace = open_trace(written(tmp_path / "e.jsonl", LOG), Reading())
    assert trace.format_name == "evenflow event log"
    assert trace.requests == (
        TraceRequest(0.0, 10, 5, name="a"),
        TraceRequest(0.5, 20, 7, name="b", tenant="them"),
    )
    assert (trace.num_rows, trace.dropped) == (4, (("not seen to its end", 1), ("no output tokens", 1)))


def test_an_id_that_was_used_again_is_two_requests(tmp_path: Path) -> None:
    later = arrived("a", 3.0, prompt=30)._replace(accepted_time=60.0)
    log: list[Event] = [arrived("a", 1.0), finished("a", 5), step(9, 40.0, 50.0), later]
    log.append(finished("a", 9)._replace(time=70.0, step=10))
    trace = open_trace(written(tmp_path / "e.jsonl", log), Reading())
    assert trace.requests == (TraceRequest(0.0, 10, 5, name="a"), TraceRequest(2.0, 30, 9, name="a#2"))
    assert trace.num_rows == 2


def test_a_packed_log_and_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl.gz"
    path.write_bytes(gzip.compress(written(tmp_path / "e.jsonl", LOG).read_bytes()))
    assert open_trace(path, Reading()).requests == open_trace(tmp_path / "e.jsonl", Reading()).requests
    assert len(open_trace(path, Reading(limit=1)).requests) == 1


def test_it_comes_back_from_a_trace_file_as_it_was(tmp_path: Path) -> None:
    trace = open_trace(written(tmp_path / "e.jsonl", LOG), Reading())
    write_trace(trace, tmp_path / "t.jsonl")
    assert open_trace(tmp_path / "t.jsonl", Reading()).requests == trace.requests


def test_a_log_without_requests_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="none of the 1 requests in this event log came to an output"):
        open_trace(written(tmp_path / "e.jsonl", LOG[1:2]), Reading())


def test_a_spoilt_log_is_told_where(tmp_path: Path) -> None:
    path = written(tmp_path / "e.jsonl", LOG)
    path.write_text(path.read_text() + "{oh\n" + path.read_text())
    with pytest.raises(TraceError, match=r"e\.jsonl"):
        open_trace(path, Reading())


def test_what_is_neither_is_told_by_the_reader_of_traces(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(TraceError, match="no known trace format"):
        open_trace(tmp_path / "x.csv", Reading())
    with pytest.raises(TraceError, match="cannot read"):
        open_trace(tmp_path / "missing.csv", Reading())


def test_what_prompts_had_in_common_they_have_again(tmp_path: Path) -> None:
    started = ConfigChanged(0.0, (), (("block_size", 4),))
    ends = [finished(name, 5)._replace(content=content) for name, content in (("a", (7, 8, 9)), ("b", (7, 3)))]
    log: list[Event] = [started, arrived("a", 1.0), arrived("b", 2.0), *ends]
    first, second = open_trace(written(tmp_path / "e.jsonl", log), Reading()).requests
    assert first.prefix is not None
    assert second.prefix is not None
    # Ten tokens are two full blocks, of 7 and of what follows it, and two tokens of nobody else's.
    assert first.prefix.ids[:2] == (7, 8)
    assert second.prefix.ids[:2] == (7, 3)
    assert first.prefix.ids[2] != second.prefix.ids[2]
    assert first.prefix.covers(10)
