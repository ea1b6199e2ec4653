"""How an event is written as one line of JSON: `{"type":"StepRecord","step":1,...}`.

Each event class has a line class made from its fields, so the log's schema *is* core/events.py. Reading is strict: a
missing, unknown or mistyped field is an error. A step's line leaves out what nearly always says nothing new:
`scheduled` if it is what the step before had, `emitted` if everyone scheduled got one token, in that order, and
`left_out` and `doors` if they are empty; so do a few others. A batch that decodes changes only when somebody comes or
goes, so most lines are of a length that does not grow with the batch, and most records share one tuple.
"""

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter, itemgetter
from typing import Annotated, Any, Literal, get_args

import msgspec

from evenflow.core.events import SCHEMA_VERSION, Arrived, ConfigChanged, Event, Finished, StepRecord
from evenflow.core.request import RequestId

# A step of version 2 always says whom it fed; else it is the same.
READABLE_VERSIONS = (2, SCHEMA_VERSION)


class Header(msgspec.Struct, frozen=True, tag="Log", forbid_unknown_fields=True):
    """The first line of each part of a log. `settings` is what the engine ran with, for people."""

    schema_version: int = SCHEMA_VERSION
    part: Annotated[int, msgspec.Meta(ge=1)] = 1
    settings: dict[str, str] = {}


class AnyHeader(msgspec.Struct, frozen=True):
    """What a header of every schema version has; read first, so that another version is named as such.

    Its type is a field and no tag, which may be missing: a result of a replay has a schema version too.
    """

    type: Literal["Log"]
    schema_version: int


_MOST = 2**53
_Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]
_Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e12)]
_Priority = Annotated[int, msgspec.Meta(ge=-_MOST, le=_MOST)]


def _bounded(event_class: type[Event], name: str, kind: Any) -> Any:  # Any: types are values here
    """What a number of a log may be; a log is not always what an engine wrote."""
    if event_class is Arrived and name == "priority":
        return _Priority
    return {int: _Count, float: _Seconds}.get(kind, kind)


_FED: Mapping[str, Any] = {"scheduled": tuple[tuple[RequestId, _Count], ...]}  # Any: as above

_EVENT_CLASSES: tuple[type[Event], ...] = get_args(Event)
_DEFAULTS: Mapping[type[Event], Mapping[str, object]] = {
    StepRecord: {"scheduled": None, "emitted": None, "left_out": (), "doors": ()},
    Arrived: {"prompt_logprobs": False},
    Finished: {"content": ()},
    ConfigChanged: {"limits": (), "policy": ""},
}


def _line_class(event_class: type[Event]) -> type[msgspec.Struct]:
    defaults = _DEFAULTS.get(event_class, {})
    specs: list[tuple[str, Any] | tuple[str, Any, Any]] = []  # Any: here a field's type is a value
    for name, kind in event_class.__annotations__.items():
        if name not in defaults:
            specs.append((name, _bounded(event_class, name, kind)))
        elif defaults[name] is None:
            specs.append((name, _FED.get(name, kind) | None, None))
        else:
            specs.append((name, kind, defaults[name]))
    return msgspec.defstruct(
        event_class.__name__,
        specs,
        frozen=True,
        tag=event_class.__name__,
        omit_defaults=True,
        forbid_unknown_fields=True,
        gc=False,  # lines never hold one another
    )


_LINE_CLASSES: Mapping[type[Event], type[msgspec.Struct]] = {cls: _line_class(cls) for cls in _EVENT_CLASSES}
_EVENT_OF_LINE: Mapping[type, type[Event]] = {line: cls for cls, line in _LINE_CLASSES.items()}
_Values = Callable[[object], tuple[Any, ...]]  # Any: only ever handed to the class of the same fields, in order
_VALUES: Mapping[type, _Values] = {line: attrgetter(*cls._fields) for cls, line in _LINE_CLASSES.items()}
_SCHEDULED = StepRecord._fields.index("scheduled")
assert StepRecord._fields[_SCHEDULED:] == ("scheduled", "emitted", "left_out", "doors")
_STEP_LINE = _LINE_CLASSES[StepRecord]
_Scheduled = tuple[tuple[RequestId, int], ...]
_NAME: Callable[[tuple[RequestId, int]], RequestId] = itemgetter(0)


class SameAgain(ValueError):
    """A step's line says that it fed whom the step before it fed, and there is none before it."""


class _LastStep:
    """Of one part of a log: whom the last step fed."""

    def __init__(self) -> None:
        self.scheduled: _Scheduled | None = None
        self.everyone: tuple[RequestId, ...] = ()

    def fed(self, scheduled: _Scheduled) -> None:
        self.scheduled = scheduled
        self.everyone = tuple(map(_NAME, scheduled))

    def fed_the_same(self, scheduled: _Scheduled) -> bool:
        last = self.scheduled
        # Usually somebody ended: there is no need to fetch both from memory up to where he was.
        return scheduled is last or (last is not None and len(scheduled) == len(last) and scheduled == last)


class ToLines:
    """The events of one part of a log as lines; hand them over in order."""

    def __init__(self) -> None:
        self._last = _LastStep()
        self._last_emitted: tuple[RequestId, ...] | None = None
        self._emitted: tuple[RequestId, ...] | None = None  # of the last line

    def lines(self, events: Iterable[Event]) -> list[msgspec.Struct]:
        lines, step, line_of = [], self._step, _LINE_CLASSES
        for event in events:
            if isinstance(event, StepRecord):
                lines.append(step(event))
            else:
                lines.append(line_of[type(event)](*event))
        return lines

    def _step(self, record: StepRecord) -> msgspec.Struct:
        last, scheduled, emitted = self._last, None, record.emitted
        if not last.fed_the_same(record.scheduled):
            last.fed(scheduled := record.scheduled)
            self._last_emitted = None
        # A batch that decodes gives the same two tuples step after step: what is in them need not be looked at again.
        if emitted is not self._last_emitted:
            self._last_emitted = emitted
            self._emitted = None if emitted == last.everyone else emitted
        return _STEP_LINE(*record[:_SCHEDULED], scheduled, self._emitted, record.left_out, record.doors)


class FromLines:
    """The lines of one part of a log as events. Raises SameAgain where a step leaves out what no step said before."""

    def __init__(self) -> None:
        self._last = _LastStep()

    def event(self, line: msgspec.Struct) -> Event:
        event_class = _EVENT_OF_LINE[type(line)]
        values = _VALUES[type(line)](line)
        if event_class is StepRecord:
            last = self._last
            scheduled, emitted = values[_SCHEDULED], values[_SCHEDULED + 1]
            if scheduled is not None:
                last.fed(scheduled)
            elif last.scheduled is None:
                raise SameAgain("it may be left out only where an earlier line of this file has it")
            emitted = last.everyone if emitted is None else emitted
            values = (*values[:_SCHEDULED], last.scheduled, emitted, *values[_SCHEDULED + 2 :])
        return event_class(*values)


def line_decoder() -> msgspec.json.Decoder[msgspec.Struct]:
    """Of one event's line; raises msgspec.MsgspecError."""
    # Any: a union that is built at run time is no type that a checker knows.
    union: Any = _LINE_CLASSES[_EVENT_CLASSES[0]]
    for event_class in _EVENT_CLASSES[1:]:
        union = union | _LINE_CLASSES[event_class]
    return msgspec.json.Decoder(union)
