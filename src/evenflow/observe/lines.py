"""How an event is written as one line of JSON: `{"type": "StepRecord", "step": 1, ...}`.

Each event class has a line class, made from its fields, so that the log's schema *is* core/events.py. Reading is strict:
a missing, unknown or mistyped field is an error. Two things are left out of a step's line because they nearly always say
nothing new: `emitted` if everyone scheduled got a token, in that order, and `left_out` and `doors` if empty.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any, get_args

import msgspec

from evenflow.core.events import SCHEMA_VERSION, Event, StepRecord

_OPTIONAL: Mapping[tuple[type, str], tuple[object, object]] = {
    (StepRecord, "emitted"): (tuple[str, ...] | None, None),
    (StepRecord, "left_out"): (None, ()),
    (StepRecord, "doors"): (None, ()),
}


class Header(msgspec.Struct, frozen=True, tag="Log", forbid_unknown_fields=True):
    """The first line of a log. `settings` is what the engine ran with, for people."""

    schema_version: int = SCHEMA_VERSION
    settings: dict[str, str] = {}


class _Version(msgspec.Struct, frozen=True, tag="Log"):
    """What every schema version of the header must have; read first, so that another version is named as such."""

    schema_version: int


def _line_class(event_class: type[Event]) -> type[msgspec.Struct]:
    line_fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []  # Any: a field's type is data here
    for field in fields(event_class):
        if (event_class, field.name) in _OPTIONAL:
            annotation, default = _OPTIONAL[event_class, field.name]
            line_fields.append((field.name, annotation or field.type, default))
        else:
            line_fields.append((field.name, field.type))
    return msgspec.defstruct(
        event_class.__name__,
        line_fields,
        frozen=True,
        tag=event_class.__name__,
        omit_defaults=True,
        forbid_unknown_fields=True,
    )


_EVENT_CLASSES: tuple[type[Event], ...] = get_args(Event)
_LINE_CLASSES: Mapping[type[Event], type[msgspec.Struct]] = {cls: _line_class(cls) for cls in _EVENT_CLASSES}
_EVENT_CLASS_OF: Mapping[type[msgspec.Struct], type[Event]] = {line: cls for cls, line in _LINE_CLASSES.items()}
_VALUES: Mapping[type[Event], Callable[[Event], tuple[object, ...]]] = {
    cls: attrgetter(*(field.name for field in fields(cls))) for cls in _EVENT_CLASSES
}
_NAMES: Mapping[type[Event], Callable[[object], tuple[Any, ...]]] = dict(_VALUES)
