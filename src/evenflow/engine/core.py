"""One iteration: schedule, execute, update, record. Synchronous, and the same object live and simulated.

    now -> Scheduler.schedule -> Executor.execute -> now -> Scheduler.update -> StepRecord

The world around it (clock, executor, where commands come from, where results go) is handed in.
"""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat

from evenflow.core.errors import PolicyError, PolicyProblem, RequestError
from evenflow.core.events import ConfigChanged, Event, StepRecord
from evenflow.core.kv_cache import KVCacheManager
from evenflow.core.leap import Steady
from evenflow.core.plan import Chunk, RequestOutput, StepOutcome, StepPlan
from evenflow.core.policy.table import policy_from_table, policy_to_table
from evenflow.core.ports import Clock, Executor
from evenflow.core.request import FinishReason, RequestId
from evenflow.core.scheduler import Scheduler
from evenflow.engine.api import PolicyView
from evenflow.engine.messages import Abort, Add, AskPolicy, Command, PolicyAnswer, Refusal, StepResult

StepTimes = tuple[Sequence[float], Sequence[float], Sequence[float]]
"""Of several steps: when each starts, when it ends, and what the device takes."""
Fed = tuple[tuple[tuple[RequestId, int], ...], tuple[RequestId, ...]]
"""Of one step: (request, tokens) in plan order, and who got a token."""

_NO_NEWS = StepResult()
_step_record = partial(tuple.__new__, StepRecord)  # of its fields, in the order of events.py


class EngineCore:
    """`events` is what the scheduler emits into; each result carries what has gathered there since the last.

    `stopwatch` measures what a decision takes; a simulation, whose logs are to be the same every time, stops it. Where
    nobody `keeps_log`, steps leave no record (10 us at 64 streams).
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        clock: Clock,
        events: list[Event],
        *,
        check_every_step: bool = False,
        stopwatch: Callable[[], float] = time.perf_counter,
        keeps_log: bool = True,
    ) -> None:
        self._scheduler = scheduler
        self._executor = executor
        self._clock = clock
        self._events = events
        self._outputs: list[RequestOutput] = []
        self._refusals: list[Refusal] = []
        self._answers: list[PolicyAnswer] = []
        self._check_every_step = check_every_step
        self._stopwatch = stopwatch
        self._keeps_log = keeps_log
        self._fed = FedBefore()
        self._num_blocks = scheduler.kv.num_blocks
        self._num_host_blocks = scheduler.kv.num_host_blocks

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work

    @property
    def has_news(self) -> bool:
        """Whether there is something to deliver although no step ran."""
        return bool(self._events or self._outputs or self._refusals or self._answers)

    @property
    def kv(self) -> KVCacheManager:
        """To look at."""
        return self._scheduler.kv

    def announce(self, settings: tuple[tuple[str, str], ...]) -> None:
        """Put the settings into the log; they come with the next result."""
        policy = json.dumps(policy_to_table(self._scheduler.policy.spec))
        self._events.append(ConfigChanged(self._clock.now(), settings, self._scheduler.limits, policy))

    def accept(self, command: Command) -> None:
        now = self._clock.now()
        match command:
            case Add(request):
                try:
                    self._outputs.extend(self._scheduler.add(request, now=now))
                except RequestError as error:
                    self._refusals.append(Refusal.of(request.id, error))
            case Abort(request_id, reason):
                if self._scheduler.finish(request_id, reason, now=now):
                    self._outputs.append(RequestOutput(request_id, (), reason))
            case AskPolicy(number, change):
                self._answers.append(self._answer(number, change, now))

    def _answer(self, number: int, change: bytes | None, now: float) -> PolicyAnswer:
        scheduler = self._scheduler
        problems: tuple[PolicyProblem, ...] = ()
        if change is not None:
            try:
                spec = policy_from_table(json.loads(change), scheduler.policy.spec)
                scheduler.reconfigure(spec, now=now)
            except PolicyError as error:
                problems = error.problems
        policy = scheduler.policy
        return PolicyAnswer(number, PolicyView(policy.spec, policy.bounds(), policy.limits), problems)

    def abort_all(self, reason: FinishReason) -> None:
        for state in tuple(self._scheduler.states()):
            self.accept(Abort(state.request.id, reason))

    def step(self) -> StepResult:
        start = self._clock.now()
        self._outputs.extend(self._scheduler.expire(now=start))
        if not self._scheduler.has_work:
            return self.news()
        # Measured apart from the clock, which stands still while a simulation thinks.
        began = self._stopwatch()
        plan = self._scheduler.schedule(now=start)
        schedule_seconds = self._stopwatch() - began
        outcome = self._executor.execute(plan)
        end = self._clock.now()
        outputs = self._scheduler.update(plan, outcome, now=end)
        if self._keeps_log:
            self._events.append(self._record(plan, outcome, start, end, schedule_seconds))
        if self._check_every_step:
            self._scheduler.check()
        self._outputs.extend(outputs)
        return self.news()

    def leap(self, times: Callable[[Steady], StepTimes]) -> int:
        """Several steps at once, if they are surely all alike; how many there were. 0: take a step.

        `times` says when each would begin and end on the virtual clock, which it leaves to the caller. The log, if it
        is kept, has each of them. Who ends in the last of them is in the events; there are no outputs.
        """
        if self._events or self._outputs:
            return 0
        what = self._scheduler.steady()
        if what is None or (self._keeps_log and what.token_budget is None):
            return 0
        starts, ends, device_seconds = times(what)
        if not ends:
            return 0
        kv = self._scheduler.kv
        used = kv.num_blocks - kv.num_free_blocks
        first_step = self._scheduler.step + 1
        grown = self._scheduler.leap(what, starts, ends)
        if self._keeps_log and grown:
            records, ids = [], what.request_ids
            fed = tuple([(request_id, 1) for request_id in ids]), ids
            for index, num_blocks in enumerate(grown):
                used += num_blocks
                seconds = starts[index], ends[index], device_seconds[index]
                records.append(self._leapt(what, fed, (first_step + index, index), used, seconds))
            used = kv.num_blocks - kv.num_free_blocks  # once those of the last step have ended, whose events precede it
            records[-1] = records[-1]._replace(running=self._scheduler.num_running, kv_blocks_used=used)
            self._events[:0] = records[:-1]
            self._events.append(records[-1])
        if self._check_every_step:
            self._scheduler.check()
        return len(grown)

    def _leapt(
        self,
        what: Steady,
        fed: Fed,
        number: tuple[int, int],
        kv_blocks_used: int,
        seconds: tuple[float, float, float],
    ) -> StepRecord:
        """`number` is the step's in all and in the leap."""
        (step, index), kv, num_decodes = number, self._scheduler.kv, len(fed[1])
        context = what.decode_context + index * num_decodes
        assert what.token_budget is not None
        return StepRecord(
            step=step,
            start=seconds[0],
            end=seconds[1],
            prefill_tokens=0,
            decode_tokens=num_decodes,
            attended_context_tokens=context,
            decode_context_tokens=context,
            num_scheduled=num_decodes,
            running=num_decodes,
            waiting=self._scheduler.num_waiting,
            kv_blocks_used=kv_blocks_used,
            kv_blocks_total=kv.num_blocks,
            host_blocks_used=kv.num_host_blocks - kv.num_free_host_blocks,
            host_blocks_total=kv.num_host_blocks,
            token_budget=what.token_budget,
            preemptions=0,
            cached_tokens=0,
            swapped_out_blocks=0,
            swapped_in_blocks=0,
            schedule_seconds=0.0,
            device_seconds=seconds[2],
            swap_seconds=0.0,
            scheduled=fed[0],
            emitted=fed[1],
            left_out=(),
            doors=what.doors,
        )

    def news(self) -> StepResult:
        """Everything since the last result, handed over once."""
        if not self.has_news:
            return _NO_NEWS
        result = StepResult(tuple(self._outputs), tuple(self._events), tuple(self._refusals), tuple(self._answers))
        self._outputs.clear()
        self._events.clear()
        self._refusals.clear()
        self._answers.clear()
        return result

    def _record(
        self, plan: StepPlan, outcome: StepOutcome, start: float, end: float, schedule_seconds: float
    ) -> StepRecord:
        # What is looked up here comes from memory: a model's weights have just swept the caches. So tuples are taken
        # apart at once, and the scheduler is asked once.
        (
            step,
            chunks,
            token_budget,
            num_prefill_tokens,
            num_decode_tokens,
            attended_context_tokens,
            decode_context_tokens,
            num_cached_tokens,
            _entered,
            _left,
            preempted,
            swap_out,
            swap_in,
            left_out,
            doors,
        ) = plan
        sampled, _, _, device_seconds, swap_seconds = outcome
        running, waiting, num_free_blocks, num_free_host_blocks = self._scheduler.occupancy()
        scheduled, emitted = self._fed.told(chunks, sampled, only_decodes=num_prefill_tokens == 0)
        return _step_record(
            (
                step,
                start,
                end,
                num_prefill_tokens,
                num_decode_tokens,
                attended_context_tokens,
                decode_context_tokens,
                len(chunks),
                running,
                waiting,
                self._num_blocks - num_free_blocks,
                self._num_blocks,
                self._num_host_blocks - num_free_host_blocks,
                self._num_host_blocks,
                token_budget,
                len(preempted),
                num_cached_tokens,
                len(swap_out),
                len(swap_in),
                schedule_seconds,
                device_seconds,
                swap_seconds,
                scheduled,
                emitted,
                left_out,
                doors,
            )
        )


class FedBefore:
    """Whom steps fed and gave a token, as records tell it: the same objects as before as long as it is the same.

    So a decoding batch of any size is one tuple for many records, and whoever reads them (the log, the folds, the pipe
    to another process) sees in one comparison that nothing changed. A step that only decodes feeds one token to each
    of those that it gives one, in the order of its chunks: there the chunks need not be looked at, and a step of 64
    streams takes 0.6 us if the batch stayed and 2 us if it changed, instead of 3.
    """

    __slots__ = ("_decoded", "_emitted", "_scheduled")

    def __init__(self) -> None:
        self._scheduled: tuple[tuple[RequestId, int], ...] = ()
        self._emitted: tuple[RequestId, ...] = ()
        self._decoded = False  # whether what was scheduled last is one token for each of the emitted

    def told(self, chunks: Sequence[Chunk], sampled: Iterable[RequestId], *, only_decodes: bool) -> Fed:
        emitted = tuple(sampled)
        only_decodes = only_decodes and len(emitted) == len(chunks)
        if emitted != self._emitted:
            self._emitted = emitted
        elif only_decodes and self._decoded:
            return self._scheduled, self._emitted
        if only_decodes:
            scheduled = tuple(zip(emitted, repeat(1)))
        else:
            scheduled = tuple([(chunk[0], len(chunk[2])) for chunk in chunks])
        if scheduled != self._scheduled:
            self._scheduled = scheduled
        self._decoded = only_decodes
        return self._scheduled, self._emitted
