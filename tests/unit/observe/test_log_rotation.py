"""A rotated log is the same log: no line lost, none split, and the parts are read in order."""

import gzip
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import pytest

from evenflow.core.errors import ConfigError
from evenflow.core.events import ConfigChanged, Event, StepRecord
from evenflow.observe.log import EventLogWriter, LogError, read_log, read_part
from evenflow.observe.log_parts import Rotation, part_path, parts_of
from recording import Batches, busy_runs, flat
from story import alone, step

EVERYTHING = 10_000


@cache
def busy_run() -> Batches:
    return busy_runs(1)[0]


def write(path: Path, batches: Iterable[Sequence[Event]], *, size: int, keep: int = EVERYTHING) -> None:
    with EventLogWriter(path, rotation=Rotation(size, keep)) as log:
        for batch in batches:
            log.write(batch)


def read(path: Path) -> list[Event]:
    with read_log(path) as log:
        return list(log)


def steps(count: int) -> list[list[Event]]:
    return [[step(number, float(number), number + 0.5, emitted="ab")] for number in range(1, count + 1)]


@pytest.mark.parametrize("size", [1, 700, 5_000, 10**9])
def test_no_event_is_lost_whatever_the_size(size: int, tmp_path: Path) -> None:
    run = busy_run()
    path = tmp_path / "run.jsonl"
    write(path, run, size=size)
    assert read(path) == flat(run)
    numbers = [number for number, _ in parts_of(path)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) == {1: len(run), 10**9: 0}.get(size, len(numbers)) - (size == 1)


def test_every_part_is_a_log_of_whole_lines_and_of_whole_batches(tmp_path: Path) -> None:
    run = busy_run()
    path = tmp_path / "run.jsonl"
    write(path, run, size=2_000)
    parts = [part for _, part in parts_of(path)]
    assert len(parts) > 2
    batches_ends = {len(flat(run[: number + 1])) for number in range(len(run))}
    seen = 0
    for part in parts:
        content = part.read_bytes()
        assert content.endswith(b"\n")
        longest_batch = max(len(flat([batch])) for batch in run) * 1_000
        assert 2_000 <= len(content) < 2_000 + longest_batch
        seen += len(read(part))
        assert seen in batches_ends


def test_only_the_newest_full_parts_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write(path, steps(10), size=1, keep=3)
    assert [number for number, _ in parts_of(path)] == [7, 8, 9]
    assert [event.step for event in read(path) if isinstance(event, StepRecord)] == [7, 8, 9, 10]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.jsonl", *(f"run.jsonl.{n}" for n in (7, 8, 9))]


def test_each_part_says_its_number_and_the_settings_in_force_when_it_began(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    changed: list[list[Event]] = [[ConfigChanged(0.0, (("seats", "8"),))]]
    with EventLogWriter(path, settings=[("seats", "?"), ("seed", "1")], rotation=Rotation(1)) as log:
        for batch in [*changed, *steps(2)]:
            log.write(batch)
    headers = []
    for part in (part_path(path, 1), part_path(path, 2), path):
        with read_part(part) as one:
            headers.append((one.header.part, one.header.settings["seats"], one.header.settings["seed"]))
    assert headers == [(1, "?", "1"), (2, "8", "1"), (3, "8", "1")]
    with read_log(path) as whole:
        assert whole.header.part == 1


def test_a_reader_follows_a_log_that_is_rotated_while_it_reads(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    batches = steps(9)
    with EventLogWriter(path, rotation=Rotation(1)) as writer:
        writer.write(batches[0])
        writer.flush()
        seen: list[Event] = []
        with read_log(path) as log:
            for batch, event in zip(batches[1:], log, strict=False):
                seen.append(event)
                writer.write(batch)
                writer.flush()
            seen += log
    assert seen == flat([tuple(batch) for batch in batches])


def test_a_part_may_be_compressed(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write(path, steps(4), size=1)
    part = part_path(path, 2)
    part.with_name(part.name + ".gz").write_bytes(gzip.compress(part.read_bytes()))
    part.unlink()
    assert len(read(path)) == 4


def test_a_part_that_is_missing_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write(path, steps(5), size=1)
    part_path(path, 3).unlink()
    with pytest.raises(LogError, match=r"run\.jsonl: part 3 of the log is missing"):
        read(path)


def test_a_part_with_anothers_number_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write(path, steps(5), size=1)
    part_path(path, 4).replace(part_path(path, 3))
    with pytest.raises(LogError, match=r"part 3 of the log is missing; .*run\.jsonl\.3 is part 4"):
        read(path)


def test_a_new_log_removes_the_parts_of_the_one_it_replaces(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write(path, steps(5), size=1)
    with EventLogWriter(path) as log:
        log.write(alone())
    assert read(path) == list(alone())
    assert [file.name for file in tmp_path.iterdir()] == ["run.jsonl"]


def test_what_is_no_part_of_a_log_is_not_removed(tmp_path: Path) -> None:
    mine = tmp_path / "run.jsonl.1"
    mine.write_text("my notes\n")
    with pytest.raises(LogError, match=r"run\.jsonl\.1 is in the way of the event log"):
        EventLogWriter(tmp_path / "run.jsonl")
    assert mine.read_text() == "my notes\n"


def test_a_log_that_cannot_be_rotated_says_so_once_and_ends(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    failures: list[LogError] = []
    with EventLogWriter(path, rotation=Rotation(1), failed=failures.append) as log:
        log.write(steps(1)[0])
        part_path(path, 1).mkdir()
        log.write(steps(2)[1])
        log.write(steps(3)[2])
    assert [str(failure) for failure in failures] == [f"cannot write the event log {path}: Is a directory"]


@pytest.mark.parametrize(("size", "keep"), [(0, 1), (1, 0), (1, 100_001)])
def test_a_rotation_that_would_keep_nothing_is_refused(size: int, keep: int) -> None:
    with pytest.raises(ConfigError, match="event log"):
        Rotation(size, keep)


@pytest.mark.parametrize("content", ["arrival_s,input_tokens\n0,1\n", '{"arrival_s":0}\n', "[" * 100_000])
def test_what_is_no_log_is_not_replaced_by_one(content: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(content)
    with pytest.raises(
        LogError, match=r"trace\.csv is there, and is not an event log; give the event log another name"
    ):
        EventLogWriter(path)
    assert path.read_text() == content


@pytest.mark.parametrize("content", ["", '{"type":"Log","schema_version":99,"more":1}\n'])
def test_an_empty_file_and_a_log_of_another_version_are_replaced(content: str, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(content)
    with EventLogWriter(path) as log:
        log.write(alone())
    assert read(path) == list(alone())
