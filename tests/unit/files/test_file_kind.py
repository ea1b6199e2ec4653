"""Who gives one of evenflow's files for another is told what it is, and what takes it."""

import gzip
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from evenflow.core.errors import EvenflowError
from evenflow.files.file_kind import FileKind, kind_of, kind_of_head, mistaken
from evenflow.observe.log import EventLogWriter, read_log
from evenflow.replay.recorded import open_trace
from evenflow.replay.result import read_result, write_result
from evenflow.simulate.cost_file import load_cost, save_cost
from evenflow.workload.formats import Reading
from records import record, result
from story import alone
from tuning_runs import device


def written(kind: FileKind, folder: Path) -> Path:
    path = folder / f"{kind.name.lower()}.json"
    match kind:
        case FileKind.EVENT_LOG:
            with EventLogWriter(path) as log:
                log.write(list(alone()))
        case FileKind.RESULT:
            write_result(result(record(0, 0.0)), {}, path)
        case FileKind.COST:
            save_cost(path, device())
        case FileKind.TRACE:
            path.write_text("arrival_s,input_tokens,output_tokens\n0,1,1\n")
    return path


def read_events(path: Path) -> None:
    with read_log(path):
        pass


READERS: dict[FileKind, Callable[[Path], object]] = {
    FileKind.EVENT_LOG: read_events,
    FileKind.RESULT: read_result,
    FileKind.COST: load_cost,
    FileKind.TRACE: lambda path: open_trace(path, Reading()),
}
NAMES = {
    FileKind.EVENT_LOG: "an event log",
    FileKind.RESULT: "the result of a replay",
    FileKind.COST: "a step cost",
    FileKind.TRACE: "a trace",
}
# An event log is a trace too; a trace has no mark of its own.
MISTAKES = [
    (found, wanted)
    for found, wanted in product(FileKind, FileKind)
    if found not in (wanted, FileKind.TRACE) and (found, wanted) != (FileKind.EVENT_LOG, FileKind.TRACE)
]


@pytest.mark.parametrize(("found", "wanted"), MISTAKES, ids=lambda kind: kind.name.lower())
def test_one_for_another_is_named_with_what_to_do(found: FileKind, wanted: FileKind, tmp_path: Path) -> None:
    path = written(found, tmp_path)
    with pytest.raises(EvenflowError) as said:
        READERS[wanted](path)
    told, _, instead = str(said.value).partition("; ")
    assert told == f"{path} is {NAMES[found]} and not {NAMES[wanted]}"
    assert "`evenflow " in instead or "--cost" in instead


@pytest.mark.parametrize(
    "kind", [FileKind.EVENT_LOG, FileKind.RESULT, FileKind.COST], ids=lambda kind: kind.name.lower()
)
def test_what_evenflow_writes_is_known_packed_too(kind: FileKind, tmp_path: Path) -> None:
    path = written(kind, tmp_path)
    assert kind_of(path) is kind
    packed = tmp_path / "packed.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert kind_of(packed) is kind
    READERS[kind](path)


@pytest.mark.parametrize(
    "head", [b"", b"{", b'{"type":""}', b'{"type":"Arrived"}', b'[{"type":"Log"}]', b"\xff\x00", b"a,b"]
)
def test_what_is_nobodys_is_left_to_its_reader(head: bytes, tmp_path: Path) -> None:
    assert kind_of_head(head) is None
    (tmp_path / "x.gz").write_bytes(head)
    assert kind_of(tmp_path / "x.gz") is None
    assert kind_of(tmp_path / "missing") is None
    assert mistaken(None, FileKind.RESULT, "x") is None
