"""One name for one life: a client may use a request id again once its request is over, and a trace replayed twice to
one server does. Whoever keeps a log's requests by id would take the lives of one id for a single one.

    Arrived a ... Finished a ... Arrived a ... Finished a     ->     Arrived a ... Finished a ... Arrived a#2 ...

The first life keeps its name, so a log in which no id was used again comes through as it is.
"""

from collections.abc import Iterable, Iterator

from evenflow.core.events import (
    Arrived,
    ConfigChanged,
    Event,
    Finished,
    FirstToken,
    PolicyChanged,
    Preempted,
    Rejected,
    Scheduled,
    StepRecord,
)
from evenflow.core.request import RequestId


def distinct_lives(events: Iterable[Event]) -> Iterator[Event]:
    """The events in their order. Remembers every id."""
    lives: dict[RequestId, int] = {}
    names: dict[RequestId, RequestId] = {}  # of those ids that were used again: what the present life is called
    for event in events:
        if isinstance(event, Arrived):
            number = lives[event.request_id] = lives.get(event.request_id, 0) + 1
            if number > 1:
                names[event.request_id] = RequestId(f"{event.request_id}#{number}")
        yield _renamed(event, names) if names else event


def _renamed(event: Event, names: dict[RequestId, RequestId]) -> Event:
    match event:
        case Arrived() | Scheduled() | FirstToken() | Finished() if event.request_id in names:
            return event._replace(request_id=names[event.request_id])
        case Preempted():
            return event._replace(
                request_id=names.get(event.request_id, event.request_id),
                for_request=names.get(event.for_request, event.for_request),
            )
        case StepRecord():
            return event._replace(
                scheduled=tuple((names.get(each, each), num) for each, num in event.scheduled),
                emitted=tuple(names.get(each, each) for each in event.emitted),
                left_out=tuple(
                    each._replace(request_id=names.get(each.request_id, each.request_id)) for each in event.left_out
                ),
                doors=tuple(each._replace(head=names.get(each.head, each.head)) for each in event.doors),
            )
        case PolicyChanged():
            return event._replace(moved=tuple((names.get(each, each), flow) for each, flow in event.moved))
        case Arrived() | Scheduled() | FirstToken() | Finished() | Rejected() | ConfigChanged():
            return event  # a refused one had no life
