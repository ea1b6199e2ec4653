"""The journal of a search: a JSON line for everything that was done, so that the same command goes on where it ended.

    {"did":"began",...}       first: what is searched. Another search in the same folder is refused.
    {"did":"simulated",...}   a cell of the grid; its observations are in a file beside the journal
    {"did":"ran",...}         a live run; its result is in a file beside the journal
    {"did":"failed",...}      either of them, with the reason. It is not tried again.
    {"did":"refitted",...}    a cost file made of the live runs

A line is written when its file is. A search that was killed leaves at most half a line, which is cut off.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from evenflow.core.errors import ConfigError, EvenflowError
from evenflow.files.bounded_file import read_at_most

SCHEMA_VERSION = 1
_MAX_BYTES = 1 << 28


class JournalError(EvenflowError):
    """A journal cannot be read or written; the message names the file and the line."""


class Began(msgspec.Struct, frozen=True, tag_field="did", tag="began"):
    """`facts` is everything that a result depends on, by name."""

    schema_version: int
    facts: dict[str, str]


class Simulated(msgspec.Struct, frozen=True, tag_field="did", tag="simulated"):
    """`num_outside` steps of `num_steps` were outside what the cost model has seen; `seconds` it took to simulate."""

    stage: int
    cell: str
    file: str
    seconds: float
    num_steps: int = 0
    num_outside: int = 0


class Ran(msgspec.Struct, frozen=True, tag_field="did", tag="ran"):
    """`seconds` of the machine, from the server's start to its end. `log` is its event log."""

    stage: int
    round: int
    cell: str
    file: str
    log: str
    seconds: float


class Failed(msgspec.Struct, frozen=True, tag_field="did", tag="failed"):
    """`round` is None for a simulation."""

    stage: int
    cell: str
    why: str
    seconds: float
    round: int | None = None


class Refitted(msgspec.Struct, frozen=True, tag_field="did", tag="refitted"):
    """The cost, to the steps of so many live runs."""

    stage: int
    num_runs: int
    seconds: float


Entry = Began | Simulated | Ran | Failed | Refitted


class Journal:
    """`entries` are those of earlier runs of the command and of this one."""

    def __init__(self, path: Path, facts: dict[str, str]) -> None:
        self._path = path
        self.entries: list[Entry] = list(_read(path))
        if not self.entries:
            self.add(Began(SCHEMA_VERSION, facts))
            return
        began = self.entries[0]
        if not isinstance(began, Began) or began.schema_version != SCHEMA_VERSION:
            raise JournalError(f"{path} is not a journal that this evenflow can go on with; give another --out")
        other = [name for name in sorted(began.facts.keys() | facts.keys()) if began.facts.get(name) != facts.get(name)]
        if other:
            told = "; ".join(f"{name} was {began.facts.get(name, '-')}, is {facts.get(name, '-')}" for name in other)
            raise ConfigError(
                f"{path.parent} holds another search ({told}); give another --out, or delete that folder to begin anew"
            )

    @property
    def is_resumed(self) -> bool:
        return len(self.entries) > 1

    def add(self, entry: Entry) -> None:
        try:
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(entry) + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise JournalError(f"cannot write {self._path}: {error.strerror}") from error
        self.entries.append(entry)

    def simulated(self, stage: int) -> dict[str, Simulated | Failed]:
        """By cell."""
        return {
            each.cell: each
            for each in self.entries
            if (isinstance(each, Simulated) and each.stage == stage)
            or (isinstance(each, Failed) and each.stage == stage and each.round is None)
        }

    def ran(self, stage: int) -> dict[tuple[int, str], Ran | Failed]:
        """By round and cell."""
        found: dict[tuple[int, str], Ran | Failed] = {}
        for each in self.entries:
            if isinstance(each, Ran | Failed) and each.stage == stage and each.round is not None:
                found[each.round, each.cell] = each
        return found

    def refitted(self, stage: int) -> Refitted | None:
        return next((each for each in self.entries if isinstance(each, Refitted) and each.stage == stage), None)

    def seconds_of(self, *, live: bool) -> float:
        """What all of it took, whichever run of the command did it."""
        total = 0.0
        for each in self.entries:
            match each:
                case Ran():
                    total += each.seconds if live else 0.0
                case Failed():
                    total += each.seconds if live == (each.round is not None) else 0.0
                case Simulated() | Refitted():
                    total += 0.0 if live else each.seconds
                case Began():
                    pass
        return total


def _read(path: Path) -> Iterator[Entry]:
    if not path.exists():
        return
    try:
        data = read_at_most(path, _MAX_BYTES)
        if data is None:
            raise JournalError(f"{path} is larger than {_MAX_BYTES} bytes; no journal is")
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.truncate(path, whole)
    except OSError as error:
        raise JournalError(f"cannot read {path}: {error.strerror}") from error
    decoder = msgspec.json.Decoder(Entry)
    for number, line in enumerate(data[:whole].splitlines(), start=1):
        try:
            yield decoder.decode(line)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise JournalError(f"{path} line {number} is not of a journal: {error}") from error
