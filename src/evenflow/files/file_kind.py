"""Which of evenflow's own files one is, so that who gives the wrong one is told what it is, and what takes it.

They say it in their first field: `{"type":"Log",...` in the first line of an event log, `{"kind":"evenflow-replay",...`
in a result, `{"kind":"evenflow-step-cost",...` in a cost. A trace is anybody's, and says nothing.
"""

import gzip
import re
import zlib
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

_HEAD_BYTES = 256
_FIRST_FIELD = re.compile(rb'\s*\{\s*"(?:type|kind)"\s*:\s*"([A-Za-z-]*)"')


class FileKind(Enum):
    """The value is what stands in the file; of a trace nothing does."""

    EVENT_LOG = "Log"
    RESULT = "evenflow-replay"
    COST = "evenflow-step-cost"
    TRACE = ""


_NAMES: Mapping[FileKind, str] = {
    FileKind.EVENT_LOG: "an event log",
    FileKind.RESULT: "the result of a replay",
    FileKind.COST: "a step cost",
    FileKind.TRACE: "a trace",
}

# By what is there and what is wanted; {} is the file.
_INSTEAD: Mapping[tuple[FileKind, FileKind], str] = {
    (FileKind.EVENT_LOG, FileKind.RESULT): (
        "`evenflow simulate --trace {}` or `evenflow replay --trace {}` makes a result of the load in it"
    ),
    (FileKind.EVENT_LOG, FileKind.COST): "`evenflow calibrate --log {}` fits a cost to it",
    (FileKind.RESULT, FileKind.EVENT_LOG): (
        "`evenflow serve --event-log FILE` writes a log; `evenflow compare` and `evenflow diagnose` take results"
    ),
    (FileKind.RESULT, FileKind.TRACE): (
        "give the trace that was replayed, or the event log of its server; `evenflow compare` and `evenflow diagnose` "
        "take results"
    ),
    (
        FileKind.RESULT,
        FileKind.COST,
    ): "`evenflow calibrate` measures a cost, and `evenflow costs` lists ready-made ones",
}
_GIVE_COST = "give it as --cost, beside what is to be simulated"


def kind_of_head(head: bytes) -> FileKind | None:
    """Of a file that begins so; None for what evenflow did not write."""
    found = _FIRST_FIELD.match(head[:_HEAD_BYTES])
    said = found[1].decode() if found is not None else ""
    return next((kind for kind in FileKind if said and kind.value == said), None)


def kind_of(path: Path) -> FileKind | None:
    """None too for what cannot be read: its reader says why."""
    try:
        with path.open("rb") as file:
            return kind_of_head((gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file).read(_HEAD_BYTES))
    except (OSError, EOFError, zlib.error):
        return None


def mistaken(found: FileKind | None, wanted: FileKind, name: str) -> str | None:
    """What to say to whom who gave the one for the other; None if that is not what is wrong."""
    if found is None or found is wanted:
        return None
    instead = _GIVE_COST if found is FileKind.COST else _INSTEAD[found, wanted].format(name, name)
    return f"{name} is {_NAMES[found]} and not {_NAMES[wanted]}; {instead}"
