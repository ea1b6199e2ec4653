"""The log gives back what was written, and says where a broken one breaks."""

import gzip
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from evenflow.core.events import ConfigChanged, Event, Finished, Preempted, Rejected, Scheduled, StepRecord
from evenflow.core.plan import Door, LeftOut, WaitReason
from evenflow.core.request import RequestId
from evenflow.observe.log import EventLogReader, EventLogWriter, GrowingLines, LogError, read_log
from evenflow.observe.recent import RecentEvents
from recording import busy_runs, flat
from story import alone, arrived, step


def write(path: Path, events: list[Event]) -> list[str]:
    with EventLogWriter(path, settings=[("max_num_seqs", "8")]) as log:
        log.write(events)
    return path.read_text().splitlines()


def read(path: Path) -> list[Event]:
    with read_log(path) as log:
        return list(log)


@contextmanager
def disk_with_room(num_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def test_every_event_of_real_runs_comes_back_as_it_was(tmp_path: Path) -> None:
    runs = [[*flat(run), Rejected(1e6, RequestId("x"), 'says "no"\nand é')] for run in busy_runs(3)]
    events = [event for run in runs for event in run]
    kinds = {type(event) for event in events}
    assert {ConfigChanged, Preempted, Scheduled, Finished, StepRecord} <= kinds
    assert any(isinstance(e, StepRecord) and e.left_out for e in events)
    assert any(isinstance(e, StepRecord) and e.emitted and len(e.emitted) < e.num_scheduled for e in events)
    for run in runs:
        write(tmp_path / "run.jsonl", run)
        assert read(tmp_path / "run.jsonl") == run


def test_the_header_has_the_schema_version_and_the_settings(tmp_path: Path) -> None:
    lines = write(tmp_path / "run.jsonl", list(alone()))
    assert lines[0] == '{"type":"Log","schema_version":3,"part":1,"settings":{"max_num_seqs":"8"}}'
    with read_log(tmp_path / "run.jsonl") as log:
        assert log.header.settings == {"max_num_seqs": "8"}


@pytest.mark.parametrize("written_at_once", [True, False])
def test_a_full_disk_leaves_a_log_of_whole_lines(written_at_once: bool, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    events = flat(busy_runs(1)[0])
    whole = write(path, events)
    for room in (3, len(whole[0]) + 1, len(path.read_bytes()) // 2, len(path.read_bytes()) - 1):
        failures: list[LogError] = []
        batches = [events] if written_at_once else [[event] for event in events]
        with (
            disk_with_room(room),
            EventLogWriter(path, settings=[("max_num_seqs", "8")], failed=failures.append) as log,
        ):
            for batch in batches:
                log.write(batch)
        assert [str(failure) for failure in failures] == [f"cannot write the event log {path}: File too large"]
        kept = path.read_text()
        lines = kept.splitlines()
        assert kept == "".join(line + "\n" for line in whole[: len(lines)]), "to the last whole line"
        assert len(kept) <= room < len(kept) + len(whole[len(lines)]) + 1
        if lines:
            assert read(path) == events[: len(lines) - 1]


def test_a_line_names_its_event_and_its_fields(tmp_path: Path) -> None:
    lines = write(tmp_path / "run.jsonl", list(alone()))
    assert lines[3] == '{"type":"FirstToken","time":3.0,"step":1,"request_id":"a"}'


def test_a_step_line_leaves_out_what_says_nothing_new(tmp_path: Path) -> None:
    usual = step(1, 0.0, 1.0, emitted="ab")
    unusual = step(2, 1.0, 2.0, emitted="a", fed="ab", left_out="c", door=WaitReason.KV)
    first, second = write(tmp_path / "run.jsonl", [usual, unusual])[1:]
    assert not any(f'"{name}"' in first for name in ("emitted", "left_out", "doors"))
    assert '"emitted":["a"],"left_out":[["c","budget"]],"doors":[["all","z","kv"]]}' in second
    assert read(tmp_path / "run.jsonl") == [usual, unusual]


def test_a_step_line_leaves_out_whom_it_fed_where_the_step_before_fed_the_same(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    events: list[Event] = [
        step(1, 0.0, 1.0, emitted="ab"),
        step(2, 1.0, 2.0, emitted="ab"),
        arrived("c", 2.0),
        step(3, 2.0, 3.0, emitted="a", fed="ab"),
        step(4, 3.0, 4.0, emitted="b"),
    ]
    lines = write(path, events)[1:]
    assert ['"scheduled"' in line for line in lines] == [True, False, False, False, True]
    assert ['"emitted"' in line for line in lines] == [False, False, False, True, False]
    found = read(path)
    assert found == events
    first, second = (event for event in found[:2] if isinstance(event, StepRecord))
    assert second.scheduled is first.scheduled, "a long log is small in memory too"


def test_a_log_whose_first_step_does_not_say_whom_it_fed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    lines = write(path, [step(1, 0.0, 1.0, emitted="ab"), step(2, 1.0, 2.0, emitted="ab")])
    path.write_text("\n".join([lines[0], lines[2], ""]))
    with pytest.raises(LogError, match=r"line 2: field scheduled: it may be left out only where an earlier line"):
        read(path)


def test_a_log_of_the_version_before_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write(path, list(alone()))
    path.write_text(path.read_text().replace('"schema_version":3', '"schema_version":2'))
    assert read(path) == list(alone())


def test_a_step_that_gave_nobody_a_token_is_told_from_one_that_gave_everybody_one(tmp_path: Path) -> None:
    events: list[Event] = [step(1, 0.0, 1.0, emitted="", fed="a"), step(2, 1.0, 2.0, emitted="a")]
    write(tmp_path / "run.jsonl", events)
    assert read(tmp_path / "run.jsonl") == events


def test_a_compressed_log_is_read_too(tmp_path: Path) -> None:
    write(tmp_path / "run.jsonl", list(alone()))
    (tmp_path / "run.jsonl.gz").write_bytes(gzip.compress((tmp_path / "run.jsonl").read_bytes()))
    assert read(tmp_path / "run.jsonl.gz") == list(alone())


def test_lines_reach_the_disk_by_time_by_size_and_when_the_engine_falls_idle(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with EventLogWriter(path, flush_events=20, flush_seconds=1.0) as log:
        log.write([arrived("a", 0.0), step(1, 10.0, 10.5, emitted="a")])
        assert lines_of(path) == 3
        log.write([step(2, 10.5, 11.0, emitted="a")])
        assert lines_of(path) == 3
        log.write([step(3, 11.0, 11.5, emitted="a")])
        assert lines_of(path) == 5
        log.write([step(4, 11.5, 12.0, emitted="a"), *[arrived(f"r{i}", 12.0) for i in range(20)]])
        assert lines_of(path) == 26
        log.write([step(5, 12.0, 12.25, emitted="a")])
        assert lines_of(path) == 26
        log.write([step(6, 12.25, 12.5, emitted="a", running=0)])
        assert lines_of(path) == 28


def test_a_log_is_read_while_it_is_written_line_by_whole_line(tmp_path: Path) -> None:
    events: list[Event] = list(alone())
    lines = write(tmp_path / "whole.jsonl", events)
    growing = tmp_path / "growing.jsonl"
    seen: list[Event] = []
    with growing.open("ab", buffering=0) as writer, growing.open("rb") as file:
        writer.write(lines[0].encode() + b"\n")
        reader = EventLogReader(GrowingLines(file), "growing.jsonl")
        for number, line in enumerate(lines[1:]):
            middle = len(line) // 2
            writer.write(line[:middle].encode())
            seen += reader
            assert len(seen) == number
            writer.write(line[middle:].encode() + b"\n")
            seen += reader
            assert len(seen) == number + 1
        writer.write(b'{"type":"Log"}\n')
        with pytest.raises(LogError, match=f"line {len(lines) + 1}: "):
            list(reader)
    assert seen == events


def test_what_happens_outside_a_step_reaches_the_disk_at_once(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with EventLogWriter(path) as log:
        log.write([ConfigChanged(0.0, (("a", "b"),))])
        assert lines_of(path) == 2


BROKEN = [
    (lambda line: line.replace('"step":1', '"step":"one"'), "line 3: field step: Expected `int`, got `str`"),
    (lambda line: line.replace('"resumed":false', '"resumed":0'), "line 3: field resumed: Expected `bool`"),
    (lambda line: line.replace(',"cached_tokens":4', ""), "line 3: field cached_tokens: Object missing required"),
    (lambda line: line.replace("cached_tokens", "cached_tokns"), "line 3: field cached_tokns: Object contains unknown"),
    (lambda line: line.replace("Scheduled", "Skeduled"), "line 3: field type: Invalid value 'Skeduled'"),
    (lambda line: line[:-9], "line 3: JSON is malformed"),
    (lambda line: "[1]", "line 3: Expected `object`, got `array`"),
    (lambda line: "", "line 3: "),
    (lambda line: "\udcff", "line 3: "),
]


@pytest.mark.parametrize(("spoil", "message"), BROKEN)
def test_a_broken_line_is_named_with_its_field(spoil: Callable[[str], str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    lines = write(path, list(alone()))
    lines[2] = spoil(lines[2])
    path.write_bytes("\n".join([*lines, ""]).encode("utf-8", "surrogateescape"))
    with pytest.raises(LogError) as caught:
        read(path)
    assert f"{path} {message}" in str(caught.value)


def test_a_value_deep_in_a_line_is_named_by_its_place(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write(path, [step(1, 0.0, 1.0, emitted="a", left_out="b")])
    path.write_text(path.read_text().replace('["b","budget"]', '["b","bad mood"]'))
    with pytest.raises(LogError, match=r"line 2: field left_out\[0\]\[1\]: Invalid enum value 'bad mood'"):
        read(path)


def test_a_line_that_was_cut_off_is_called_that(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write(path, list(alone()))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(LogError, match="line 8 is cut off: writing was interrupted"):
        read(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty; an event log begins with a header line"),
        (b'{"type":"Log","schema_version":7,"codec":"x"}\n', "schema_version is 7, but this evenflow reads 2 and 3"),
        (b'{"type":"Log","schema_version":3,"codec":"x"}\n', "line 1: field codec: Object contains unknown field"),
        (b'{"kind":"replay","schema_version":1}\n', "is not an event log: its first line is not a header"),
        (b'{"type":"Arrived"}\n', "is not an event log: its first line is not a header"),
        (b"TIMESTAMP,ContextTokens\n", "is not an event log: its first line is not a header"),
        (b"\x1f\x8b\x08\x00", "is not an event log: its first line is not a header"),
    ],
)
def test_what_is_no_log_of_this_version_is_refused_at_its_first_line(
    content: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)
    with pytest.raises(LogError) as caught:
        read(path)
    assert message in str(caught.value)


@pytest.mark.parametrize("damage", [lambda data: data[:-12], lambda data: b"no gzip"])
def test_a_damaged_gzip_file_is_an_error_that_names_it(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    write(tmp_path / "run.jsonl", list(alone()))
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(damage(gzip.compress((tmp_path / "run.jsonl").read_bytes())))
    with pytest.raises(LogError, match=r"run\.jsonl\.gz line \d+: cannot be read"):
        read(path)


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"cannot read the event log .*missing"):
        read(tmp_path / "missing")
    with pytest.raises(LogError, match=r"cannot write the event log .*nowhere"):
        EventLogWriter(tmp_path / "nowhere" / "run.jsonl")


def test_the_latest_events_are_kept_and_numbered() -> None:
    recent = RecentEvents(capacity=4)
    events = list(alone())
    recent.extend(events[:3])
    assert recent.since(0) == events[:3]
    assert recent.since(2) == events[2:3]
    recent.extend(events[3:])
    assert recent.next_number == 7
    assert recent.since(0) == events[3:]
    assert recent.since(5) == events[5:]
    assert recent.since(7) == []


def test_doors_and_left_out_keep_their_types(tmp_path: Path) -> None:
    write(tmp_path / "run.jsonl", [step(1, 0.0, 1.0, emitted="a", left_out="b", door=WaitReason.QUOTA)])
    (record,) = read(tmp_path / "run.jsonl")
    assert isinstance(record, StepRecord)
    assert record.doors == (Door("all", RequestId("z"), WaitReason.QUOTA),)
    assert isinstance(record.left_out[0], LeftOut)
