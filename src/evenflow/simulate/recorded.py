"""A recorded run fed back: the same commands at the same moments, the same step times, and so the same decisions.

The log of a live engine says when each command was taken (a request accepted, one aborted, the policy changed), how
long every step took, which blocks of whose content were equal, and how each answer ended. Fed with that, the scheduler
must plan every step as it did live: who was scheduled with how many tokens, who was left out and why, who lost a seat.
`replay_log` runs it again and compares step by step; the first step that differs is named with both sides.

    log, in order    Arrived | Finished by a command | PolicyChanged   ->  a command at its own time
                     StepRecord                                        ->  a step from start to end

What the log cannot say is what a request that never ended in it would have shared.
"""

import json
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from evenflow.core.errors import EvenflowError
from evenflow.core.events import (
    Arrived,
    ConfigChanged,
    Event,
    Finished,
    PolicyChanged,
    Preempted,
    Scheduled,
    StepRecord,
)
from evenflow.core.plan import Chunk, StepOutcome, StepPlan
from evenflow.core.policy.table import policy_from_table
from evenflow.core.request import FinishReason, Request, RequestId, SamplingParams
from evenflow.engine.build import assemble
from evenflow.engine.clock import VirtualClock
from evenflow.engine.config import ResolvedEngine
from evenflow.engine.core import EngineCore
from evenflow.engine.messages import Abort, Add, AskPolicy, StepResult
from evenflow.observe.lives import distinct_lives
from evenflow.simulate.config import VOCAB_SIZE
from evenflow.simulate.replica import stopped_watch

_STOP_TOKEN = VOCAB_SIZE - 1
_OWN = 1 << 60  # content of one's own; what the log numbers is below
_BY_ITSELF = (FinishReason.STOP, FinishReason.LENGTH)


class RecordedError(EvenflowError):
    """A log cannot be fed back; the message says what it lacks."""


@dataclass(frozen=True, slots=True)
class Difference:
    """`recorded` and `repeated` are the same field of the same step."""

    step: int
    field: str
    recorded: object
    repeated: object

    def __str__(self) -> str:
        return f"step {self.step}: {self.field} was {self.recorded!r:.300} live, and is {self.repeated!r:.300} now"


@dataclass(frozen=True, slots=True)
class Repetition:
    """`difference` is the first, None if there is none. `num_steps` were the same."""

    num_steps: int
    num_requests: int
    num_preemptions: int
    num_aborts: int
    num_policy_changes: int
    difference: Difference | None


class _Content:
    """What stands at each position of a request: the number of its block, as the log has it."""

    def __init__(self, arrived: Arrived, finished: Finished | None, block_size: int, number: int) -> None:
        known = finished.content if finished is not None else ()
        longest = arrived.num_prompt_tokens + arrived.max_tokens
        num_blocks = min(-(-longest // block_size), len(known) + -(-arrived.num_prompt_tokens // block_size) + 1)
        self._own = _OWN + number
        self._ids = array("q", known)
        self._ids.extend([self._own] * (num_blocks - len(known)))
        self._block_size = block_size
        ends_itself = finished is not None and finished.reason is FinishReason.STOP
        self.num_output_tokens = finished.num_output_tokens if finished is not None and ends_itself else None

    def prompt(self, num_tokens: int) -> "array[int]":
        tokens = array("q")
        for block_id in self._ids:
            tokens.extend(array("q", (block_id,)) * self._block_size)
        del tokens[num_tokens:]
        return tokens

    def at(self, position: int) -> int:
        index = position // self._block_size
        return self._ids[index] if index < len(self._ids) else self._own


class _RecordedExecutor:
    """Time passes as it did; every token is the content that the log numbers, and the last one a stop token where the
    answer stopped by itself."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.record: StepRecord | None = None
        self.contents: dict[RequestId, tuple[_Content, int, bool]] = {}

    def execute(self, plan: StepPlan, /) -> StepOutcome:
        record = self.record
        assert record is not None
        self._clock.advance_to(record.end)
        sampled = {chunk.request_id: self._token(chunk) for chunk in plan.chunks if chunk.samples}
        return StepOutcome(sampled, device_seconds=record.device_seconds, swap_seconds=record.swap_seconds)

    def _token(self, chunk: Chunk) -> int:
        content, num_prompt_tokens, stops = self.contents[chunk.request_id]
        position = chunk.start + len(chunk.token_ids)
        is_last = stops and position - num_prompt_tokens + 1 == content.num_output_tokens
        return _STOP_TOKEN if is_last else content.at(position)


_SAME = [
    name
    for name in StepRecord._fields
    if name not in ("schedule_seconds", "device_seconds", "swap_seconds", "start", "end")
]


def replay_log(events: Iterable[Event], *, progress: Callable[[int], None] = lambda steps: None) -> Repetition:
    """Raises RecordedError. Reads the whole log first: how an answer ended is needed when it begins."""
    log = list(distinct_lives(events))
    return _Repeat(log).run(progress)


class _Repeat:
    def __init__(self, log: list[Event]) -> None:
        self._log = log
        started = next((event for event in log if isinstance(event, ConfigChanged) and event.limits), None)
        if started is None:
            raise RecordedError("the log does not say what the engine started with; a whole log begins with that")
        self._limits = dict(started.limits)
        resolved = resolved_of(started)
        self._policy = _table(started.policy)
        self._clock = VirtualClock(started.time)
        self._executor = _RecordedExecutor(self._clock)
        self._core: EngineCore = assemble(resolved, self._executor, clock=self._clock, stopwatch=stopped_watch)
        self._finished = {event.request_id: event for event in log if isinstance(event, Finished)}
        self._in_step = _ended_in_a_step(log)
        self._counts = {"requests": 0, "preemptions": 0, "aborts": 0, "changes": 0, "steps": 0}

    def run(self, progress: Callable[[int], None]) -> Repetition:
        difference: Difference | None = None
        recorded_preemptions: list[Event] = []
        for event in self._log:
            match event:
                case Arrived():
                    self._arrive(event)
                case Finished() if event.request_id not in self._in_step:
                    self._abort(event)
                case PolicyChanged():
                    self._change(event)
                case Preempted() | Scheduled():
                    recorded_preemptions.append(event)
                case StepRecord():
                    difference = self._step(event, recorded_preemptions)
                    recorded_preemptions = []
                    if difference is not None:
                        break
                    if self._counts["steps"] % 1000 == 0:
                        progress(self._counts["steps"])
                case _:
                    pass
        counts = self._counts
        return Repetition(
            counts["steps"],
            counts["requests"],
            counts["preemptions"],
            counts["aborts"],
            counts["changes"],
            difference,
        )

    def _arrive(self, event: Arrived) -> None:
        self._counts["requests"] += 1
        if event.num_prompt_tokens > self._limits["max_model_len"]:
            raise RecordedError(
                f"request {event.request_id!r} has {event.num_prompt_tokens} tokens, above the context of its engine"
            )
        finished = self._finished.get(event.request_id)
        block_size = self._limits["block_size"]
        content = _Content(event, finished, block_size, self._counts["requests"])
        stops = event.request_id in self._in_step and content.num_output_tokens is not None
        self._executor.contents[event.request_id] = (content, event.num_prompt_tokens, stops)
        self._clock.advance_to(event.accepted_time)
        request = Request(
            id=event.request_id,
            # An array, as of simulated requests: the core asks for its length and for pieces of it.
            prompt_token_ids=cast("tuple[int, ...]", content.prompt(event.num_prompt_tokens)),
            sampling=SamplingParams(
                max_tokens=event.max_tokens, temperature=0.0, prompt_logprobs=0 if event.prompt_logprobs else None
            ),
            arrival_time=event.time,
            eos_token_ids=(_STOP_TOKEN,),
            tenant=event.tenant,
            service_class=event.service_class,
            priority=event.priority,
            ttft_deadline=event.ttft_deadline,
        )
        self._core.accept(Add(request))
        result = self._core.news()
        if result.refusals:
            raise RecordedError(
                f"request {event.request_id!r} was accepted live and is refused now: {result.refusals[0]}"
            )

    def _abort(self, event: Finished) -> None:
        """By a command, or by the scheduler itself (shed, expired): then it has ended here too, and this is nothing."""
        self._clock.advance_to(event.time)
        if event.reason in (FinishReason.SHED, FinishReason.EXPIRED):
            return
        self._counts["aborts"] += 1
        self._core.accept(Abort(event.request_id, event.reason))
        self._core.news()

    def _change(self, event: PolicyChanged) -> None:
        self._counts["changes"] += 1
        self._clock.advance_to(event.time)
        policy = _table(event.policy)
        self._core.accept(AskPolicy(0, _whole(policy, self._policy)))
        self._policy = policy
        for answer in self._core.news().answers:
            if answer.problems:
                raise RecordedError(f"a change of policy that held live is refused now: {answer.problems[0].reason}")

    def _step(self, record: StepRecord, recorded: list[Event]) -> Difference | None:
        self._clock.advance_to(record.start)
        self._executor.record = record
        result = self._core.step()
        again = next((event for event in result.events if isinstance(event, StepRecord)), None)
        if again is None:
            return Difference(record.step, "step", "ran", "there is nothing to do")
        for name in _SAME:
            was, now = getattr(record, name), getattr(again, name)
            if was != now:
                return Difference(record.step, name, was, now)
        self._counts["steps"] += 1
        self._counts["preemptions"] += record.preemptions
        return _seats(record.step, recorded, result)


def _seats(step: int, recorded: list[Event], result: StepResult) -> Difference | None:
    repeated = [event for event in result.events if isinstance(event, Preempted | Scheduled)]
    for was, now in zip(recorded, repeated, strict=False):
        if was != now:
            return Difference(step, type(was).__name__, was, now)
    if len(recorded) != len(repeated):
        return Difference(step, "admissions and preemptions", len(recorded), len(repeated))
    return None


def _ended_in_a_step(log: list[Event]) -> set[RequestId]:
    """Those whose own last token ended them: their `Finished` comes with the step's own record behind it."""
    ended: set[RequestId] = set()
    last_step = 0
    for event in log:
        if isinstance(event, StepRecord):
            last_step = event.step
        elif isinstance(event, Finished) and event.reason in _BY_ITSELF and event.step > last_step:
            ended.add(event.request_id)
    return ended


_LIMITS = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "watermark_blocks",
    "num_blocks",
    "block_size",
    "num_host_blocks",
    "prefix_caching",
)
_MOST_BLOCKS = 1 << 26


def resolved_of(started: ConfigChanged) -> ResolvedEngine:
    """What the engine of a log ran with. Raises RecordedError, PolicyError."""
    limits = dict(started.limits)
    missing = [name for name in _LIMITS if name not in limits]
    if missing:
        raise RecordedError(f"the log's settings lack {', '.join(missing)}")
    wrong = [name for name in _LIMITS[:3] + _LIMITS[4:6] if limits[name] < 1]
    wrong += [name for name in ("watermark_blocks", "num_host_blocks") if limits[name] < 0]
    too_many = max(limits[name] for name in _LIMITS) > _MOST_BLOCKS
    if wrong or too_many or limits["num_blocks"] + limits["num_host_blocks"] > _MOST_BLOCKS:
        raise RecordedError(f"the log's settings are beyond all sense: {limits}")
    numbers: dict[str, Any] = {name: limits[name] for name in _LIMITS if name != "prefix_caching"}
    return ResolvedEngine(
        **numbers,
        kv_bytes=0,
        host_kv_bytes=0,
        vocab_size=VOCAB_SIZE,
        prefix_caching=bool(limits["prefix_caching"]),
        policy_name="as recorded",
        policy=policy_from_table(_table(started.policy)),
    )


def _table(policy: str) -> dict[str, object]:
    try:
        table = json.loads(policy)
    except (ValueError, RecursionError) as error:
        raise RecordedError(f"the log's policy is not JSON: {error}") from None
    if not isinstance(table, dict):
        raise RecordedError("the log's policy is not a table")
    return table


def _whole(table: Mapping[str, object], before: Mapping[str, object]) -> bytes:
    """As a change that leaves nothing of what held before: a class or tenant that it does not name would stay."""
    change = dict(table)
    for name in ("classes", "tenant_weights"):
        old, new = before.get(name), table.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            change[name] = {**{each: None for each in old if each not in new}, **new}
    return json.dumps(change).encode()
