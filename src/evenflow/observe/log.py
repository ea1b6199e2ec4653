"""The event log: every event as a line of JSON, after one line of header; and the latest events, kept in memory.

The writer gathers lines, and writes them out when there are `flush_bytes` of them, when it has not done so for
`flush_seconds`, and when the engine falls idle. The reader streams, so a log may be larger than memory,
and stops at the first line that is not what the schema says.
"""

import gzip
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from math import inf
from pathlib import Path
from typing import BinaryIO, Protocol, Self

import msgspec

from evenflow.core.errors import EvenflowError
from evenflow.core.events import SCHEMA_VERSION, Event, StepRecord
from evenflow.observe.lines import AnyHeader, Header, line_decoder, to_event, to_line

MAX_LINE_BYTES = 64 * 2**20
_FIELD = re.compile(r"^(?P<what>.*) - at `\$\.?(?P<field>.*)`$")
_NAMED_FIELD = re.compile(r"^Object (?:missing required|contains unknown) field `(?P<field>[^`]*)`")


class LogError(EvenflowError):
    """An event log cannot be read or written; the message names the file, the line and the field."""


class EventLogWriter:
    """A new log file; one that exists is replaced. Raises LogError where the file cannot be written.

    `failed` is told once if that happens later (a full disk, say): the log ends there, and nothing is kept for it.
    """

    def __init__(
        self,
        path: Path,
        *,
        settings: Iterable[tuple[str, str]] = (),
        flush_bytes: int = 1 << 16,
        flush_seconds: float = 0.2,
        failed: Callable[[LogError], None] | None = None,
    ) -> None:
        self._path = path
        self._failed = failed
        self._over = False
        self._flush_bytes = flush_bytes
        self._flush_seconds = flush_seconds
        self._encoder = msgspec.json.Encoder()
        self._lines = bytearray()
        self._last_flush = -inf  # on the events' clock
        with self._errors_named():
            self._file = path.open("wb", buffering=0)  # our own buffer is the only one
        self._append(Header(settings=dict(settings)))

    def write(self, events: Iterable[Event]) -> None:
        """Time is what the step records say. What happens outside a step, or ends all work, is on disk at once."""
        if self._over:
            return
        last_step: StepRecord | None = None
        for event in events:
            self._append(to_line(event))
            if isinstance(event, StepRecord):
                last_step = event
        if (
            last_step is None
            or last_step.running + last_step.waiting == 0
            or last_step.end - self._last_flush >= self._flush_seconds
            or len(self._lines) >= self._flush_bytes
        ):
            self.flush()
            self._last_flush = last_step.end if last_step is not None else self._last_flush

    def _append(self, line: msgspec.Struct) -> None:
        self._encoder.encode_into(line, self._lines, -1)
        self._lines += b"\n"

    def flush(self) -> None:
        """Hand everything to the operating system."""
        try:
            with self._errors_named():
                while self._lines:
                    del self._lines[: self._file.write(self._lines)]
        except LogError as error:
            self._lines.clear()
            self._over = True
            if self._failed is None:
                raise
            self._failed(error)

    def close(self) -> None:
        """Flush, and be done. The file is closed even if it takes no more (a full disk)."""
        try:
            self.flush()
        finally:
            with self._errors_named():
                self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LogError(f"cannot write the event log {self._path}: {error.strerror}") from error


class Lines(Protocol):
    def readline(self, limit: int, /) -> bytes: ...


class EventLogReader:
    """The header, and then every event, of a stream of lines. `name` is how errors call it.

    Iterating goes on where it ended before: worth it only if lines were added meanwhile.
    """

    def __init__(self, file: Lines, name: str) -> None:
        self._file = file
        self._name = name
        self._line_number = 0
        self._decoder = line_decoder()
        self.header = self._read_header()

    def __iter__(self) -> Iterator[Event]:
        while line := self._read_line():
            try:
                yield to_event(self._decoder.decode(line))
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise self._error(line, error) from error

    def _read_header(self) -> Header:
        line = self._read_line()
        if not line:
            raise LogError(f"{self._name} is empty; an event log begins with a header line")
        try:
            version = msgspec.json.decode(line, type=AnyHeader).schema_version
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise LogError(
                f"{self._name} is not an event log: its first line is not a header ({_explain(error)})"
            ) from error
        if version != SCHEMA_VERSION:
            raise LogError(
                f"{self._name} line 1: schema_version is {version}, but this evenflow reads {SCHEMA_VERSION}; "
                "read the log with the evenflow that wrote it"
            )
        try:
            return msgspec.json.decode(line, type=Header)
        except msgspec.MsgspecError as error:
            raise self._error(line, error) from error

    def _read_line(self) -> bytes:
        try:
            line = self._file.readline(MAX_LINE_BYTES)
        except (OSError, EOFError, zlib.error) as error:
            raise LogError(f"{self._name} line {self._line_number + 1}: cannot be read ({error})") from error
        if line:
            self._line_number += 1
        if len(line) == MAX_LINE_BYTES:
            raise LogError(f"{self._name} line {self._line_number} is longer than {MAX_LINE_BYTES} bytes")
        return line

    def _error(self, line: bytes, error: Exception) -> LogError:
        place = f"{self._name} line {self._line_number}"
        if not line.endswith(b"\n"):
            return LogError(f"{place} is cut off: writing was interrupted; remove this last line to read the rest")
        return LogError(f"{place}: {_explain(error)}")


def _explain(error: Exception) -> str:
    """msgspec's sentence with the field first."""
    text = str(error)
    if (found := _FIELD.match(text)) is not None:
        return f"field {found['field']}: {found['what']}"
    if (found := _NAMED_FIELD.match(text)) is not None:
        return f"field {found['field']}: {text}"
    return text


@contextmanager
def read_log(path: Path) -> Iterator[EventLogReader]:
    """Open a log, also one that was compressed to .gz, for as long as the context lasts."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise LogError(f"cannot read the event log {path}: {error.strerror}") from error
    with file:
        yield EventLogReader(gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file, str(path))


class GrowingLines:
    """The lines of a file that another process still writes: whole ones only, and b"" where there is none yet."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._begun = b""

    def readline(self, limit: int, /) -> bytes:
        self._begun += self._file.readline(limit - len(self._begun))
        if not self._begun.endswith(b"\n") and len(self._begun) < limit:
            return b""
        line, self._begun = self._begun, b""
        return line


class RecentEvents:
    """The latest events, numbered from 0 on, so that a reader can ask for what it has not seen."""

    def __init__(self, capacity: int) -> None:
        assert capacity > 0
        self._events: deque[Event] = deque(maxlen=capacity)
        self._num_seen = 0

    def extend(self, events: Sequence[Event]) -> None:
        self._events.extend(events)
        self._num_seen += len(events)

    @property
    def next_number(self) -> int:
        """The number that the next event will have."""
        return self._num_seen

    def since(self, number: int) -> list[Event]:
        """Events of this number and later, as far as they are still kept."""
        num_missed = max(0, number - (self._num_seen - len(self._events)))
        return list(islice(self._events, num_missed, None))
