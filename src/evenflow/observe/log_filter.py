"""Which events of a log are asked for.

A request's events are its own, and everything that explains them: the records of all steps from its arrival to its end,
fed or not, and changes of settings and policy. So a log filtered by request still tells that request's whole story.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isnan
from typing import get_args

from evenflow.core.errors import ConfigError
from evenflow.core.events import Arrived, ConfigChanged, Event, Finished, PolicyChanged, Rejected, StepRecord
from evenflow.core.request import RequestId
from evenflow.observe.story import engine_ids

EVENT_NAMES: tuple[str, ...] = tuple(cls.__name__ for cls in get_args(Event))


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Every condition that is given must hold. `since` and `until` are seconds after the log's first event; `steps` is
    the first and the last step. An event that names no step belongs to the step after it."""

    requests: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    service_class: str | None = None
    tenant: str | None = None
    since: float | None = None
    until: float | None = None
    steps: tuple[int | None, int | None] = (None, None)

    def __post_init__(self) -> None:
        for name in self.events:
            if name not in EVENT_NAMES:
                raise ConfigError(f"there is no event {name!r}; events are {', '.join(EVENT_NAMES)}")
        for name, seconds in (("since", self.since), ("until", self.until)):
            if seconds is not None and isnan(seconds):
                raise ConfigError(f"{name} must be seconds after the log's first event, not nan")
        for what, first, last in (("time span", self.since, self.until), ("range of steps", *self.steps)):
            if first is not None and last is not None and last < first:
                raise ConfigError(f"the {what} ends at {last:g}, before it begins at {first:g}")

    @property
    def by_request(self) -> bool:
        return bool(self.requests) or self.service_class is not None or self.tenant is not None

    def select(self, events: Iterable[Event]) -> Iterator[Event]:
        selection = _Selection(self)
        return (event for event in events if selection.takes(event))


class _Selection:
    """What must be remembered on the way through a log: who of the living is asked for."""

    def __init__(self, wanted: LogFilter) -> None:
        self._wanted = wanted
        self._ids = {name for request in wanted.requests for name in engine_ids(request)}
        self._by_request = wanted.by_request
        self._living: set[RequestId] = set()
        self._ended: list[RequestId] = []
        self._next_step = 0
        self._begin: float | None = None

    def takes(self, event: Event) -> bool:
        time = event.end if isinstance(event, StepRecord) else event.time
        if self._begin is None:
            self._begin = event.start if isinstance(event, StepRecord) else time
        about_them = not self._by_request or self._concerns_them(event)
        step = self._next_step if isinstance(event, (Arrived, Rejected, ConfigChanged)) else event.step
        if isinstance(event, StepRecord):
            self._next_step = event.step + 1
            self._living.difference_update(self._ended)
            self._ended.clear()
        wanted = self._wanted
        first, last = wanted.steps
        return (
            about_them
            and (not wanted.events or type(event).__name__ in wanted.events)
            and (wanted.since is None or time - self._begin >= wanted.since)
            and (wanted.until is None or time - self._begin <= wanted.until)
            and (first is None or step >= first)
            and (last is None or step <= last)
        )

    def _concerns_them(self, event: Event) -> bool:
        match event:
            case StepRecord():
                # An id that was asked for may have arrived before the log begins.
                return bool(self._living) or any(request_id in self._ids for request_id, _ in event.scheduled)
            case ConfigChanged() | PolicyChanged():
                return True
            case Arrived():
                wanted = self._wanted
                if (
                    (not self._ids or event.request_id in self._ids)
                    and wanted.service_class in (None, event.service_class)
                    and wanted.tenant in (None, event.tenant)
                ):
                    self._living.add(event.request_id)
                return event.request_id in self._living
            case Finished():
                self._ended.append(event.request_id)  # the record of its last step is still to come
            case _:
                pass
        only_ids = self._wanted.service_class is None and self._wanted.tenant is None
        return event.request_id in self._living or (only_ids and event.request_id in self._ids)


def step_range(text: str) -> tuple[int | None, int | None]:
    """From "10:20", "10:", ":20" or "10"."""
    first, colon, last = text.partition(":")
    try:
        begin, end = (int(part) if part else None for part in (first, last))
    except ValueError:
        raise ConfigError(f"steps must be a range such as 100:200, 100: or :200, not {text!r}") from None
    return begin, end if colon else begin
