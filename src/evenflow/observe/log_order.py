"""What the events of a log may follow: a log that was cut together, shuffled or forged tells of no run that ever was.

The folds over a log trust their events, as the engine's own are right by construction; what comes from a file is held
against the rules first. Time and step numbers never go back, and a life has this shape, from wherever the log begins:

    Arrived   ( Scheduled   [FirstToken]   Preempted )*   Scheduled   [FirstToken]   Finished
"""

from enum import Enum

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
from evenflow.core.request import FinishReason, RequestId

_MISSING = "events are missing before it, or in another order; a log that was filtered by --event cannot be told from"


class OutOfOrder(ValueError):
    """An event that cannot follow those before it; the message names the field, or the request."""


class _Life(Enum):
    WAITS = "is waiting"
    RUNS = "has a seat"
    ENDED = "has ended"


class LogOrder:
    """Hand every event over in order. Memory is bounded by the requests that live."""

    def __init__(self) -> None:
        self._time = 0.0
        self._step = -1
        self._end = 0.0  # of the last step
        self._lives: dict[RequestId, _Life] = {}
        self._had_first_token: set[RequestId] = set()
        self._ended: list[RequestId] = []  # in the step whose record is still to come

    def check(self, event: Event) -> None:
        """Raises OutOfOrder."""
        if isinstance(event, StepRecord):
            self._check_step(event)
            return
        time = event.time
        if isinstance(event, Arrived):
            if event.accepted_time < time:
                raise OutOfOrder(f"field accepted_time: {event.accepted_time:g} is before its time, {time:g}")
            time = event.accepted_time  # it came while a step ran
        self._pass_time("time", time)
        if not isinstance(event, Rejected | ConfigChanged | PolicyChanged):
            self._live(event)

    def _check_step(self, record: StepRecord) -> None:
        if record.step <= self._step:
            raise OutOfOrder(f"field step: {record.step} comes after step {self._step}")
        if record.end < record.start:
            raise OutOfOrder(f"field end: {record.end:g} is before its start, {record.start:g}")
        if record.start < self._end:
            raise OutOfOrder(f"field start: {record.start:g} is before the end of step {self._step}, {self._end:g}")
        self._pass_time("end", record.end)
        self._step, self._end = record.step, record.end
        for request_id in self._ended:
            self._forget(request_id)
        self._ended.clear()

    def _pass_time(self, field: str, time: float) -> None:
        if time < self._time:
            raise OutOfOrder(f"field {field}: {time:g} is before what was logged above, {self._time:g}")
        self._time = time

    def _live(self, event: Arrived | Scheduled | Preempted | FirstToken | Finished) -> None:
        request_id = event.request_id
        life = self._lives.get(request_id)
        match event:
            case Arrived():
                self._refuse(event, life, _Life.WAITS, _Life.RUNS, _Life.ENDED)
                self._lives[request_id] = _Life.WAITS
            case Scheduled():
                self._refuse(event, life, _Life.RUNS, _Life.ENDED)
                self._lives[request_id] = _Life.RUNS
            case Preempted():
                self._refuse(event, life, _Life.WAITS, _Life.ENDED)
                self._lives[request_id] = _Life.WAITS
            case FirstToken():
                self._refuse(event, life, _Life.WAITS, _Life.ENDED)
                if request_id in self._had_first_token:
                    raise OutOfOrder(f"FirstToken of {request_id!r}, which has had its first token: {_MISSING}")
                self._had_first_token.add(request_id)
            case Finished():
                self._refuse(event, life, _Life.ENDED)
                if event.reason in (FinishReason.STOP, FinishReason.LENGTH) and event.step > self._step:
                    self._lives[request_id] = _Life.ENDED  # until the record of this step
                    self._ended.append(request_id)
                else:
                    self._forget(request_id)

    def _refuse(self, event: Event, life: _Life | None, *wrong: _Life) -> None:
        if life is not None and life in wrong:
            assert not isinstance(event, StepRecord | ConfigChanged | PolicyChanged)
            raise OutOfOrder(f"{type(event).__name__} of {event.request_id!r}, which {life.value}: {_MISSING}")

    def _forget(self, request_id: RequestId) -> None:
        self._lives.pop(request_id, None)
        self._had_first_token.discard(request_id)
