"""`evenflow log`: what a filter lets through, and that an export says the same as the log."""

import csv
import json
import sys
from functools import cache
from pathlib import Path

import pytest

from evenflow.cli.log import log as log_command
from evenflow.core.errors import ConfigError
from evenflow.core.events import Event, Finished, Preempted, StepRecord
from evenflow.core.request import RequestId
from evenflow.observe.fold import spans_of
from evenflow.observe.log import EventLogWriter, LogError, read_log
from evenflow.observe.log_digest import digest
from evenflow.observe.log_export import COLUMNS, row_of
from evenflow.observe.log_filter import LogFilter, step_range
from evenflow.observe.log_parts import Rotation
from evenflow.observe.story import story_of
from evenflow.observe.summary import summarise
from recording import busy_runs, flat
from story import alone, arrived, finished, scheduled, step


@cache
def busy() -> tuple[Event, ...]:
    return tuple(flat(busy_runs(1)[0]))


def ids() -> list[RequestId]:
    return [event.request_id for event in busy() if isinstance(event, Finished)]


def write(path: Path, *, rotation: Rotation | None = None) -> Path:
    with EventLogWriter(path, settings=[("seed", "1")], rotation=rotation) as log:
        for event in busy():
            log.write((event,))
    return path


def read(path: Path) -> list[Event]:
    with read_log(path) as log:
        return list(log)


def chosen(wanted: LogFilter, events: tuple[Event, ...] | None = None) -> list[Event]:
    return list(wanted.select(busy() if events is None else events))


def test_without_conditions_everything_passes() -> None:
    assert chosen(LogFilter()) == list(busy())


def test_one_requests_events_tell_its_whole_story() -> None:
    for request_id in ids():
        events = chosen(LogFilter(requests=(request_id,)))
        assert len(events) < len(busy())
        assert story_of(events, request_id) == story_of(busy(), request_id)
        own = [event for event in busy() if getattr(event, "request_id", None) == request_id]
        assert [event for event in events if hasattr(event, "request_id")] == own


def test_a_request_is_found_by_the_name_that_its_client_knows() -> None:
    events = (arrived("cmpl-x", 0.0), arrived("y", 0.0), finished("cmpl-x", 1, 1.0))
    assert chosen(LogFilter(requests=("x",)), events) == [events[0], events[2]]


def test_a_request_that_arrived_before_the_log_began_is_found() -> None:
    events = (step(1, 0.0, 1.0, emitted="ab"), step(2, 1.0, 2.0, emitted="b"), finished("a", 2, 2.0))
    assert chosen(LogFilter(requests=("a",)), events) == [events[0], events[2]]


def test_a_class_or_tenant_is_its_requests_and_the_steps_of_their_lives() -> None:
    mine = arrived("a", 1.0)._replace(service_class="batch", tenant="me")
    events = (
        arrived("b", 0.0),
        step(1, 0.0, 1.0, emitted="b"),
        mine,
        scheduled("a", 2, 1.0),
        step(2, 1.0, 2.0, emitted="ab"),
        finished("a", 3, 3.0),
        step(3, 2.0, 3.0, emitted="ab"),
        step(4, 3.0, 4.0, emitted="b"),
        finished("b", 5, 5.0),
    )
    for wanted in (LogFilter(service_class="batch"), LogFilter(tenant="me"), LogFilter(("a",), (), "batch", "me")):
        assert chosen(wanted, events) == list(events[2:7])
    assert chosen(LogFilter(service_class="batch", tenant="you"), events) == []


def test_events_are_chosen_by_kind() -> None:
    assert chosen(LogFilter(events=("Preempted",))) == [event for event in busy() if isinstance(event, Preempted)]
    with pytest.raises(ConfigError, match="there is no event 'Preemted'; events are Arrived, "):
        LogFilter(events=("Preemted",))


def test_times_count_from_the_first_event() -> None:
    events = tuple(step(number, 100.0 + number, 100.5 + number, emitted="a") for number in range(1, 9))
    assert chosen(LogFilter(since=2.5, until=4.5), events) == list(events[2:5])


def test_a_step_has_with_it_what_came_before_its_record() -> None:
    events = (arrived("a", 0.0), step(1, 0.0, 1.0), arrived("b", 1.0), step(2, 1.0, 2.0), arrived("c", 2.0))
    assert chosen(LogFilter(steps=(2, 2)), events) == list(events[2:4])


@pytest.mark.parametrize(
    ("text", "steps"), [("3:9", (3, 9)), ("3:", (3, None)), (":9", (None, 9)), ("7", (7, 7)), (":", (None, None))]
)
def test_a_range_of_steps(text: str, steps: tuple[int | None, int | None]) -> None:
    assert step_range(text) == steps


@pytest.mark.parametrize("text", ["a:b", "1-2", "1:2:3"])
def test_what_is_no_range_of_steps_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="steps must be a range such as 100:200"):
        step_range(text)


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ConfigError, match="the range of steps ends at 3, before it begins at 5"):
        LogFilter(steps=(5, 3))
    with pytest.raises(ConfigError, match=r"the time span ends at 1, before it begins at 1\.5"):
        LogFilter(since=1.5, until=1.0)


def test_an_exported_log_is_a_log_and_says_the_same(tmp_path: Path) -> None:
    source = write(tmp_path / "run.jsonl", rotation=Rotation(2_000, 1_000))
    log_command(source, to=tmp_path / "all.jsonl")
    assert read(tmp_path / "all.jsonl") == list(busy())
    with read_log(tmp_path / "all.jsonl") as log:
        assert log.header.settings["seed"] == "1"


def test_a_csv_file_has_every_event_with_its_values(tmp_path: Path) -> None:
    source = write(tmp_path / "run.jsonl")
    log_command(source, source, to=tmp_path / "all.csv")
    with (tmp_path / "all.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * len(busy())
    assert list(rows[0]) == list(COLUMNS)
    for row, event in zip(rows, busy(), strict=False):
        assert row["log"] == str(source)
        assert row["event"] == type(event).__name__
        if isinstance(event, StepRecord):
            assert (int(row["step"]), float(row["end"])) == (event.step, event.end)
            assert json.loads(row["scheduled"]) == [list(each) for each in event.scheduled]
            assert json.loads(row["left_out"]) == [[name, reason.value] for name, reason in event.left_out]
            assert row["request_id"] == ""
        if isinstance(event, Finished):
            assert (row["request_id"], row["reason"]) == (event.request_id, event.reason.value)


def test_a_parquet_file_has_the_same_rows_with_types(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow (the extra `parquet`)")
    source = write(tmp_path / "run.jsonl")
    log_command(source, to=tmp_path / "all.parquet")
    rows = parquet.read_table(tmp_path / "all.parquet").to_pylist()
    empty = dict.fromkeys(COLUMNS)
    assert rows == [empty | row_of(event, str(source)) for event in busy()]


def test_parquet_without_pyarrow_says_which_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "evenflow.observe.log_parquet", raising=False)
    source = write(tmp_path / "run.jsonl")
    with pytest.raises(ConfigError, match=r"pip install 'evenflow\[parquet\]'"):
        log_command(source, to=tmp_path / "all.parquet")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.jsonl"]


def test_an_export_cut_short_by_a_broken_log_leaves_no_file(tmp_path: Path) -> None:
    source = write(tmp_path / "run.jsonl")
    source.write_bytes(source.read_bytes()[:-5])
    for suffix in ("csv", "jsonl"):
        with pytest.raises(LogError, match="is cut off"):
            log_command(source, to=tmp_path / f"all.{suffix}")
    assert [file.name for file in tmp_path.iterdir()] == ["run.jsonl"]


def test_targets_that_cannot_be_are_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "run.jsonl", rotation=Rotation(2_000, 1_000))
    with pytest.raises(ConfigError, match=r"ends in \.jsonl, \.csv, \.parquet"):
        log_command(source, to=tmp_path / "all.xlsx")
    with pytest.raises(ConfigError, match="can hold only one"):
        log_command(source, source, to=tmp_path / "all.jsonl")
    with pytest.raises(ConfigError, match="is one of the logs to be read"):
        log_command(source, to=source)
    with pytest.raises(LogError, match="No such file or directory"):
        log_command(source, to=tmp_path / "nowhere" / "all.csv")
    with pytest.raises(ConfigError, match="log needs an event log"):
        log_command()


def test_the_summary_shows_the_latencies_of_those_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = digest(busy(), LogFilter())
    assert {span.request_id for span in whole.spans} == {span.request_id for span in spans_of(busy())}
    assert whole.num_events.total() == len(busy())
    run = summarise(busy())
    assert whole.num_events["StepRecord"] == run.num_steps
    one = digest(busy(), LogFilter(requests=(ids()[0],)))
    (expected,) = (span for span in spans_of(busy()) if span.request_id == ids()[0])
    (found,) = one.spans
    assert (found.ttft_seconds, found.token_times, found.queue_by_reason) == (
        expected.ttft_seconds,
        expected.token_times,
        expected.queue_by_reason,
    )
    log_command(write(tmp_path / "run.jsonl"))
    shown = capsys.readouterr().out
    assert f"events: {len(busy()):,} in " in shown
    assert "\nrequests: " in shown
    assert "\nwaited for: " in shown
    assert "\nsettings: seed=1\n" in shown


def test_the_summary_of_nothing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.jsonl"
    with EventLogWriter(path) as log:
        log.write(alone())
    log_command(path, tenant="nobody")
    shown = capsys.readouterr().out
    assert "events: 0 in 0 s: none" in shown
    assert "nothing in this log is what was asked for" in shown
    assert "TTFT" not in shown


@pytest.mark.parametrize("name", ["since", "until"])
def test_a_time_that_is_no_number_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be seconds after the log's first event, not nan"):
        LogFilter(**{name: float("nan")})  # type: ignore[arg-type]  # of the two by name
