"""The event log: every event as a line of JSON, after one line of header.

The writer gathers events, and writes them out when there are `flush_events` of them, when it has not done so for
`flush_seconds`, and when the engine falls idle. What a step gave becomes text only then: many steps in one go cost a
third of each on its own, with caches full of something else (`evenflow bench recording`). A writer that is killed loses
what it gathered. With a `Rotation` a full file becomes a numbered part (log_parts.py).
The reader streams, so a log may be larger than memory, goes through the parts in order, and stops at the first line
that is not what the schema says.
"""

import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from math import inf
from pathlib import Path
from typing import BinaryIO, Protocol, Self

import msgspec

from evenflow.core.errors import EvenflowError
from evenflow.core.events import ConfigChanged, Event, StepRecord
from evenflow.files.file_kind import FileKind, kind_of_head, mistaken
from evenflow.observe.lines import READABLE_VERSIONS, AnyHeader, FromLines, Header, SameAgain, ToLines, line_decoder
from evenflow.observe.log_order import LogOrder, OutOfOrder
from evenflow.observe.log_parts import Rotation, part_path, parts_of

MAX_LINE_BYTES = 64 * 2**20
_FIELD = re.compile(r"^(?P<what>.*) - at `\$\.?(?P<field>.*)`$")
_NAMED_FIELD = re.compile(r"^Object (?:missing required|contains unknown) field `(?P<field>[^`]*)`")


class LogError(EvenflowError):
    """An event log cannot be read or written; the message names the file, the line and the field."""


class EventLogWriter:
    """A new log file; a log that exists is replaced, parts and all. Raises LogError where the file cannot be written.

    Each part's header has the settings in force when it began, so a part whose forerunners are gone still says them.
    `failed` is told once if that happens later (a full disk, say): the log ends there, with its last whole line, and
    nothing is kept for it.
    """

    def __init__(
        self,
        path: Path,
        *,
        settings: Iterable[tuple[str, str]] = (),
        rotation: Rotation | None = None,
        flush_events: int = 1024,
        flush_seconds: float = 1.0,
        failed: Callable[[LogError], None] | None = None,
    ) -> None:
        self._path = path
        self._failed = failed
        self._over = False
        self._rotation = rotation
        self._settings = dict(settings)
        self._part = 1
        self._part_bytes = 0  # of events, in this part or on their way there
        self._gathered: list[Sequence[Event]] = []  # as they came, not yet lines
        self._num_gathered = 0
        self._flush_events = flush_events
        self._flush_seconds = flush_seconds
        self._encoder = msgspec.json.Encoder()
        self._lines: list[bytes] = []  # not yet written, some lines each
        self._last_flush = -inf  # on the events' clock
        with self._errors_named():
            self._check_replaceable()
            self._file = path.open("wb", buffering=0)  # our own buffer is the only one
            self._remove_former_parts()
        self._begin_part()

    def write(self, events: Sequence[Event]) -> None:
        """Time is what the step records say. What happens outside a step, or ends all work, is on disk at once.

        What is written at once stays in one part: a part is as large as `rotation` says, and this much more at most.
        """
        if self._over:
            return
        self._gathered.append(events)
        self._num_gathered += len(events)
        # Between two steps every line touched here is fetched from memory, so it is few: usually the record comes last.
        last = events[-1] if events else None
        if type(last) is not StepRecord:
            last = next((event for event in reversed(events) if isinstance(event, StepRecord)), None)
        if (
            last is None
            or last.end - self._last_flush >= self._flush_seconds
            or last.running + last.waiting == 0
            or self._num_gathered >= self._flush_events
        ):
            self.flush()
            self._last_flush = last.end if last is not None else self._last_flush

    def flush(self) -> None:
        """Hand everything to the operating system."""
        batches, self._gathered, self._num_gathered = self._gathered, [], 0
        if self._rotation is None:
            self._append(self._to_lines.lines(chain.from_iterable(batches)))
        else:
            self._append_to_parts(batches, self._rotation)
        self._write_lines()

    def _append(self, lines: Sequence[msgspec.Struct]) -> None:
        text = self._encoder.encode_lines(lines)
        self._lines.append(text)
        self._part_bytes += len(text)

    def _append_to_parts(self, batches: Iterable[Sequence[Event]], rotation: Rotation) -> None:
        for events in batches:
            if self._part_bytes >= rotation.max_bytes:
                self._rotate(rotation)
            if self._over:
                return
            self._append(self._to_lines.lines(events))
            for event in events:
                if isinstance(event, ConfigChanged):
                    self._settings.update(event.settings)

    def _begin_part(self) -> None:
        self._to_lines = ToLines()
        self._append([Header(part=self._part, settings=self._settings)])
        self._part_bytes = 0

    def _rotate(self, rotation: Rotation) -> None:
        """All lines of the old part are in its file before it gets its number, so a part with a number is whole."""
        self._write_lines()
        if self._over:
            return
        try:
            with self._errors_named():
                self._file.close()
                self._path.rename(part_path(self._path, self._part))
                self._file = self._path.open("wb", buffering=0)
                for number, path in parts_of(self._path):
                    if number <= self._part - rotation.keep:
                        path.unlink()
        except LogError as error:
            self._end(error)
            return
        self._part += 1
        self._begin_part()

    def _check_replaceable(self) -> None:
        """A slip of the command line must not cost somebody a trace."""
        if not self._path.is_file():
            return
        with self._path.open("rb") as file:
            line = file.readline(MAX_LINE_BYTES)
        try:
            if line:
                msgspec.json.decode(line, type=AnyHeader)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            raise LogError(
                f"{self._path} is there, and is not an event log; give the event log another name, or move that file"
            ) from None

    def _remove_former_parts(self) -> None:
        """Those of the log that this one replaces: a reader would take them for its beginning."""
        for _, path in parts_of(self._path):
            try:
                with read_part(path):
                    pass
            except LogError as error:
                self._file.close()
                raise LogError(f"{path} is in the way of the event log {self._path}; move it ({error})") from error
            path.unlink()

    def _write_lines(self) -> None:
        lines, self._lines = self._lines, []
        text = lines[0] if len(lines) == 1 else b"".join(lines)
        num_written = 0
        try:
            num_written = self._file.write(text) if text else 0
            while num_written < len(text):  # the disk is full: the next try says so
                num_written += self._file.write(text[num_written:])
        except OSError as error:
            self._cut_back(num_written - 1 - text.rfind(b"\n", 0, num_written))
            self._end(self._named(error))

    def _cut_back(self, num_bytes: int) -> None:
        """Take back the beginning of a line: a log that ends with one is refused. It needs no room on the disk."""
        with suppress(OSError):  # a pipe, which cannot take back anything
            self._file.truncate(self._file.tell() - num_bytes)

    def _end(self, error: LogError) -> None:
        self._over = True
        if self._failed is None:
            raise error
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
            raise self._named(error) from error

    def _named(self, error: OSError) -> LogError:
        return LogError(f"cannot write the event log {self._path}: {error.strerror}")


class Lines(Protocol):
    def readline(self, limit: int, /) -> bytes: ...


class EventLogReader:
    """The header, and then every event, of a stream of lines. `name` is how errors call it; `order` is what the events
    of the part before it came to.

    Iterating goes on where it ended before: worth it only if lines were added meanwhile.
    """

    def __init__(self, file: Lines, name: str, order: LogOrder | None = None) -> None:
        self._file = file
        self.name = name
        self._line_number = 0
        self._decoder = line_decoder()
        self._from_lines = FromLines()
        self.order = order or LogOrder()
        self.header = self._read_header()

    def __iter__(self) -> Iterator[Event]:
        while line := self._read_line():
            try:
                event = self._from_lines.event(self._decoder.decode(line))
                self.order.check(event)
            except SameAgain as error:
                raise LogError(f"{self.name} line {self._line_number}: field scheduled: {error}") from error
            except OutOfOrder as error:
                raise LogError(f"{self.name} line {self._line_number}: {error}") from error
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
                raise self._error(line, error) from error
            yield event

    def _read_header(self) -> Header:
        line = self._read_line()
        if not line:
            raise LogError(f"{self.name} is empty; an event log begins with a header line")
        head = line + self._read_line() if line.strip() == b"{" else line  # JSON over several lines begins so
        if (said := mistaken(kind_of_head(head), FileKind.EVENT_LOG, self.name)) is not None:
            raise LogError(said)
        try:
            version = msgspec.json.decode(line, type=AnyHeader).schema_version
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise LogError(
                f"{self.name} is not an event log: its first line is not a header ({_explain(error)})"
            ) from error
        if version not in READABLE_VERSIONS:
            raise LogError(
                f"{self.name} line 1: schema_version is {version}, but this evenflow reads "
                f"{' and '.join(map(str, READABLE_VERSIONS))}; "
                "read the log with the evenflow that wrote it"
            )
        try:
            return msgspec.json.decode(line, type=Header)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self._error(line, error) from error

    def _read_line(self) -> bytes:
        try:
            line = self._file.readline(MAX_LINE_BYTES)
        except (OSError, EOFError, zlib.error) as error:
            raise LogError(f"{self.name} line {self._line_number + 1}: cannot be read ({error})") from error
        if line:
            self._line_number += 1
        if len(line) == MAX_LINE_BYTES:
            raise LogError(f"{self.name} line {self._line_number} is longer than {MAX_LINE_BYTES} bytes")
        return line

    def _error(self, line: bytes, error: Exception) -> LogError:
        place = f"{self.name} line {self._line_number}"
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
def read_part(path: Path, order: LogOrder | None = None) -> Iterator[EventLogReader]:
    """Open one file of a log, also one that was compressed to .gz, for as long as the context lasts."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise LogError(f"cannot read the event log {path}: {error.strerror}") from error
    with file:
        yield EventLogReader(gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file, str(path), order)


class EventLog:
    """A whole log: the parts that are still there, oldest first, and then the file itself.

    The log may go on being written, and rotated, meanwhile: a part is known by the number in its header, and not by the
    name it had when it was opened. Raises LogError where a part is missing between two others.
    """

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._path = path
        self._stack = stack
        parts = parts_of(path)
        self._numbered = bool(parts)
        self._reader = stack.enter_context(read_part(parts[0][1] if parts else path))
        self.header = self._reader.header

    def __iter__(self) -> Iterator[Event]:
        while True:
            yield from self._reader
            number = self._reader.header.part
            if not self._numbered:
                if not any(each >= number for each, _ in parts_of(self._path)):
                    return
                yield from self._reader  # what was added between its end as it was, and its number
            if not self._open(number + 1):
                return

    def _open(self, number: int) -> bool:
        """False where the log ends before this part."""
        for _ in range(2):  # it may get its number between our look at the numbers and at the file
            parts = dict(parts_of(self._path))
            self._numbered = number in parts
            path = parts.get(number, self._path)
            if not path.exists() and max(parts, default=0) < number:
                return False
            self._stack.close()
            self._reader = self._stack.enter_context(read_part(path, self._reader.order))
            if self._reader.header.part == number:
                return True
        found = f"{self._reader.name} is part {self._reader.header.part}"
        raise LogError(f"{self._path}: part {number} of the log is missing; {found}")


@contextmanager
def read_log(path: Path) -> Iterator[EventLog]:
    """Open a log with all its parts, for as long as the context lasts."""
    with ExitStack() as stack:
        yield EventLog(path, stack)


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
