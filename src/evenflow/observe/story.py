"""One request's life, step by step: when it waited and for what, behind whom, when it computed, with whom.

Phases tile the time from arrival to finish, so every microsecond is accounted for:

    intake    received, not yet in the queue          queue      no seat, by the door's reason, behind the door's head
    prefill   steps that fed it prompt tokens         decode     steps that fed it its last token
    stalled   it has a seat, steps left it out        preempted  it lost its seat: back in the queue, by reason

Neighbouring phases that say the same are one: a decode of 300 steps is a line, not 300; the pauses of the engine
between its steps are `between_seconds` of the phase they fall into. Built from the events alone, so it tells the same
of a live server and of a log file.

A client may use an id again once its request is over (a trace that is replayed twice does): the last life is told.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

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
from evenflow.core.plan import EVERYBODY, Door, WaitReason, lane_of
from evenflow.core.request import FinishReason, RequestId
from evenflow.observe.waits import ITERATION, UNEXPLAINED

WAITING: Final = frozenset({"queue", "preempted", "stalled"})
_TOKENS_WENT_ELSEWHERE: Final = frozenset(
    reason.value for reason in (WaitReason.BUDGET, WaitReason.PREFILL_SHARE, WaitReason.DECODE_SHARE)
)


@dataclass(slots=True)
class Phase:
    """`reason` is set where it waited; `behind` is the head of the queue whose door was shut, unless that was itself.

    `first_step`..`last_step` took part, `num_steps` of them; they fed it `num_tokens`. `batch` is the most requests
    that shared a step. `sharers` counts, per other request, the steps they were fed together. Where it waited because
    the tokens of the steps went to others, `spent_on` says to whom, and how many. `between_seconds` of the phase no
    step ran.
    """

    kind: str
    start: float
    end: float
    reason: str | None = None
    behind: RequestId | None = None
    first_step: int | None = None
    last_step: int | None = None
    num_steps: int = 0
    num_tokens: int = 0
    batch: int = 0
    sharers: Counter[RequestId] = field(default_factory=Counter)
    spent_on: Counter[RequestId] = field(default_factory=Counter)
    between_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def says_the_same(self, other: "Phase") -> bool:
        return (self.kind, self.reason, self.behind) == (other.kind, other.reason, other.behind)


@dataclass(slots=True)
class Story:
    """`num_prompt_tokens` is None, and times begin at the first event seen, if the log no longer holds the arrival.

    `num_earlier` requests of the same id came before this one.
    """

    request_id: RequestId
    arrival_time: float
    num_prompt_tokens: int | None = None
    max_tokens: int | None = None
    tenant: str = ""
    service_class: str = ""
    priority: int = 0
    phases: list[Phase] = field(default_factory=list)
    first_token_time: float | None = None
    finish_time: float | None = None
    finish_reason: str | None = None
    num_output_tokens: int = 0
    num_cached_tokens: int = 0
    num_preemptions: int = 0
    preempted_for: list[RequestId] = field(default_factory=list)
    rejected_because: str | None = None
    num_earlier: int = 0

    @property
    def is_over(self) -> bool:
        return self.finish_time is not None or self.rejected_because is not None

    @property
    def complete(self) -> bool:
        """The log holds it from its arrival to its end."""
        return self.num_prompt_tokens is not None and self.finish_time is not None

    def seconds_by_kind(self) -> dict[str, float]:
        """They sum to the whole life."""
        total: dict[str, float] = {}
        for phase in self.phases:
            total[phase.kind] = total.get(phase.kind, 0.0) + phase.seconds - phase.between_seconds
            total["between"] = total.get("between", 0.0) + phase.between_seconds
        return total

    def wait_by_reason(self) -> dict[str, float]:
        """All seconds without progress, by reason, longest first."""
        total: dict[str, float] = {}
        for phase in self.phases:
            if phase.kind in WAITING:
                reason = phase.reason or UNEXPLAINED
                total[reason] = total.get(reason, 0.0) + phase.seconds - phase.between_seconds
        return dict(sorted(total.items(), key=lambda item: -item[1]))


class StoryTeller:
    """Feed it a log in order; `story` is None while the request has not been seen."""

    def __init__(self, request_id: RequestId) -> None:
        self._id = request_id
        self.story: Story | None = None
        self._begin_again()

    def _begin_again(self) -> None:
        self._flow: str | None = None
        self._mark = 0.0  # the life is told up to here
        self._seated = False
        self._wait: Phase | None = None  # what it waits for now; its end is not known yet
        self._last_step = 0
        self._done = False

    def feed(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, StepRecord):
                if not self._done:
                    self._step(event)
            elif isinstance(event, PolicyChanged):
                if not self._done:
                    self._move(event)
            elif not isinstance(event, ConfigChanged) and event.request_id == self._id:
                self._own(event)

    def close(self, time: float) -> None:
        """Tell an unfinished life up to `time`."""
        if self.story is not None and not self._done:
            self._pass_time(max(time, self._mark))

    def _own(self, event: Arrived | Rejected | Scheduled | Preempted | FirstToken | Finished) -> None:
        story = self.story
        if story is None or (story.is_over and isinstance(event, Arrived | Rejected)):
            earlier = 0 if story is None else story.num_earlier + 1
            self._begin_again()
            story = self.story = Story(self._id, event.time, num_earlier=earlier)
            self._mark = event.time
        match event:
            case Arrived():
                self._arrive(story, event)
            case Rejected() if story.num_prompt_tokens is None:  # else another one, refused because this one has the id
                story.rejected_because = event.reason
                self._done = True
            case Rejected():
                pass
            case Scheduled():
                self._pass_time(event.time)
                self._seated = True
                if not event.resumed:
                    story.num_cached_tokens = event.cached_tokens
            case Preempted():
                self._pass_time(event.time)
                self._seated = False
                story.num_preemptions += 1
                story.preempted_for.append(event.for_request)
                self._wait = Phase("preempted", event.time, event.time, ITERATION)
            case FirstToken():
                story.first_token_time = event.time
            case Finished():
                self._finish(story, event)

    def _arrive(self, story: Story, event: Arrived) -> None:
        story.num_prompt_tokens, story.max_tokens = event.num_prompt_tokens, event.max_tokens
        story.tenant, story.service_class, story.priority = event.tenant, event.service_class, event.priority
        self._flow = event.flow
        self._append(Phase("intake", event.time, event.accepted_time))
        self._wait = Phase("queue", event.accepted_time, event.accepted_time, ITERATION)

    def _finish(self, story: Story, event: Finished) -> None:
        story.finish_time, story.finish_reason = event.time, event.reason.value
        story.num_output_tokens = event.num_output_tokens
        by_own_token = event.reason in (FinishReason.STOP, FinishReason.LENGTH)
        if not (by_own_token and event.step > self._last_step):  # else the record of this step is still to come
            self._pass_time(event.time)
            self._done = True

    def _step(self, record: StepRecord) -> None:
        self._last_step = record.step
        if self.story is None:
            return
        if self._wait is not None:
            self._wait_on(self._wait, record)
            return
        fed = next((num for request_id, num in record.scheduled if request_id == self._id), 0)
        self._seated = self._seated or fed > 0  # the log may begin in the middle of its life
        if self._seated:
            self._append(self._phase_of(self.story, record, fed))
        self._done = self.story.finish_time is not None

    def _phase_of(self, story: Story, record: StepRecord, fed: int) -> Phase:
        """The step that gives the first token ends the prefill; every later one that feeds one token is a decode."""
        kind, reason = "stalled", None
        if fed:
            before = story.first_token_time is None or story.first_token_time >= record.end
            kind = "prefill" if before or fed > 1 else "decode"
        else:
            reason = next((r.value for request_id, r in record.left_out if request_id == self._id), UNEXPLAINED)
        sharers = Counter(other for other, _ in record.scheduled if other != self._id) if fed else Counter()
        spent_on = Counter(dict(record.scheduled)) if reason in _TOKENS_WENT_ELSEWHERE else Counter()
        return Phase(
            kind,
            self._mark,
            record.end,
            reason,
            first_step=record.step,
            last_step=record.step,
            num_steps=1,
            num_tokens=fed,
            batch=record.num_scheduled if fed else 0,
            sharers=sharers,
            spent_on=spent_on,
            between_seconds=max(0.0, record.start - self._mark),
        )

    def _wait_on(self, wait: Phase, record: StepRecord) -> None:
        """This step's doors say what everybody who is still waiting waits for, from its start on."""
        if record.start < wait.start:
            return  # the step under way when it came
        door = self._door(record)
        reason = door.reason.value if door is not None else UNEXPLAINED
        behind = door.head if door is not None and door.head != self._id else None
        if (wait.reason, wait.behind) != (reason, behind):
            kind = wait.kind
            self._pass_time(record.start)
            wait = self._wait = Phase(kind, record.start, record.start, reason, behind)
        wait.num_steps += 1
        wait.first_step = record.step if wait.first_step is None else wait.first_step
        wait.last_step = record.step
        if reason in _TOKENS_WENT_ELSEWHERE:
            wait.spent_on.update(dict(record.scheduled))

    def _door(self, record: StepRecord) -> Door | None:
        """The nearest that speaks for it: its flow's, its lane's, or everybody's."""
        doors = {door.flow: door for door in record.doors}
        flow = self._flow or ""
        return doors.get(flow) or doors.get(lane_of(flow)) or doors.get(EVERYBODY)

    def _move(self, event: PolicyChanged) -> None:
        """Another policy may put it into another queue, whose doors the next step tells."""
        flow = next((flow for request_id, flow in event.moved if request_id == self._id), None)
        if flow is None:
            return
        self._flow = flow
        if self._wait is not None:
            kind = self._wait.kind
            self._pass_time(event.time)
            self._wait = Phase(kind, event.time, event.time, ITERATION)

    def _pass_time(self, time: float) -> None:
        """Nothing ran it until `time`: it waited in the queue, or the engine was between steps."""
        wait, self._wait = self._wait, None
        if wait is not None:
            wait.end = time
            self._append(wait)
        elif time > self._mark and self.story is not None:
            phases = self.story.phases
            if not phases:
                phases.append(Phase("stalled", self._mark, self._mark, UNEXPLAINED))
            phases[-1].between_seconds += time - self._mark
            phases[-1].end = self._mark = time

    def _append(self, phase: Phase) -> None:
        assert self.story is not None
        self._mark = phase.end
        phases = self.story.phases
        last = phases[-1] if phases else None
        if last is None or not last.says_the_same(phase):
            if phase.seconds > 0.0 or phase.num_steps:
                phases.append(phase)
            return
        last.end = phase.end
        last.between_seconds += phase.between_seconds
        last.num_steps += phase.num_steps
        last.num_tokens += phase.num_tokens
        last.batch = max(last.batch, phase.batch)
        last.sharers.update(phase.sharers)
        last.spent_on.update(phase.spent_on)
        last.first_step = phase.first_step if last.first_step is None else last.first_step
        last.last_step = phase.last_step if phase.last_step is not None else last.last_step


def engine_ids(name: str) -> tuple[RequestId, ...]:
    """What the engine may call a request that a client, or a log, knows by `name`."""
    return (RequestId(name), RequestId(f"cmpl-{name}"), RequestId(f"chatcmpl-{name}"))


def story_of(events: Iterable[Event], request_id: RequestId) -> Story | None:
    """The life of one request; an unfinished one is told up to the end of the last step."""
    teller = StoryTeller(request_id)
    last = 0.0
    for event in events:
        teller.feed((event,))
        if isinstance(event, StepRecord):
            last = event.end
    teller.close(last)
    return teller.story
