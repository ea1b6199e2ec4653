"""One engine on a virtual clock: the live scheduler and core, an executor that only lets time pass."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from evenflow.core.block_pool import BlockHash, BlockId
from evenflow.core.events import Event, Finished, Scheduled
from evenflow.core.leap import Steady
from evenflow.core.plan import StepPlan
from evenflow.core.request import RequestId
from evenflow.engine.build import assemble
from evenflow.engine.clock import VirtualClock
from evenflow.engine.config import ResolvedEngine
from evenflow.engine.core import EngineCore, StepTimes
from evenflow.engine.messages import Add, Refusal, StepResult
from evenflow.executors.simulated import HostLink, SimulatedExecutor
from evenflow.replay.request import PlannedRequest
from evenflow.simulate.cost import StepCost, StepFeatures
from evenflow.simulate.streams import Runs, Streams
from evenflow.simulate.timing import StepTimer
from evenflow.simulate.tokens import RequestMaker

EventSink = Callable[[int, Sequence[Event]], None]
PaceAt = Callable[[float], float]
"""A machine that is not the same all the time: of a moment, a factor on what the step that begins then takes."""
_UNSEEN_COPY_BYTES_PER_SECOND = 10e9
_UNSEEN_BLOCK_BYTES = 2**20


class Ended(NamedTuple):
    """A request that is over: its `Finished`, or the refusal that it met."""

    request_id: RequestId
    time: float
    finished: Finished | None
    refusal: Refusal | None
    runs: Runs
    num_cached_tokens: int


def stopped_watch() -> float:
    """Deciding takes no time that a simulation knows of; its log is the same every time."""
    return 0.0


class Replica:
    """`sink` gets every event, if there is one; without it steps leave no record."""

    def __init__(
        self,
        number: int,
        resolved: ResolvedEngine,
        cost: StepCost,
        settings: tuple[tuple[str, str], ...],
        *,
        seed: int,
        sink: EventSink | None,
        may_leap: bool,
        pace: PaceAt | None = None,
    ) -> None:
        self.number = number
        self.clock = VirtualClock()
        self.timer = StepTimer(cost, (seed, number))
        self.streams = Streams()
        self.num_steps = 0
        self.num_leapt_steps = 0
        self.num_preemptions = 0
        self.outstanding_tokens = 0
        self._gap_seconds = cost.gap_seconds
        self._pace = pace
        self._sink = sink
        self._may_leap = may_leap
        self._maker = RequestMaker()
        self._cached: dict[RequestId, int] = {}
        self._plan: StepPlan | None = None  # of the step that is being taken
        executor = SimulatedExecutor(self._step_seconds, self.clock.advance, _link(cost))
        self._core: EngineCore = assemble(
            resolved,
            executor,
            clock=self.clock,
            stopwatch=stopped_watch,
            keeps_log=sink is not None,
            gives_outputs=False,
        )
        self._core.announce(settings)

    @property
    def has_work(self) -> bool:
        return self._core.has_work

    @property
    def now(self) -> float:
        return self.clock.now()

    def pool(self) -> tuple[tuple[BlockId, ...], tuple[BlockHash | None, ...]]:
        """Every KV block that is free, in the order in which they will be taken, and what each block holds."""
        return self._core.kv.layout()

    def accept(self, plan: PlannedRequest, arrival: float) -> list[Ended]:
        """A request arrives; the loop takes it as soon as it can. It may be refused at once, or shed others."""
        self.clock.advance_to(arrival)
        request = self._maker.request(plan, arrival)
        self.outstanding_tokens += plan.num_prompt_tokens + plan.max_tokens
        self._core.accept(Add(request))
        return self._news()

    def is_done_with(self, plan: PlannedRequest) -> None:
        """It owes nothing to this request any more."""
        self.outstanding_tokens -= plan.num_prompt_tokens + plan.max_tokens

    def step(self, until: float) -> list[Ended]:
        """One step; or, where nothing can change before `until`, several at once."""
        if self._may_leap and self._leap(until):
            return self._news()
        self._plan = None
        result = self._core.step()
        plan = self._plan
        if plan is None:  # everybody's deadline had passed
            return self._take(result, self.streams.ended(result.events))
        ended = self._take(result, self.streams.step(plan, self.now, result.events))
        self.num_steps += 1
        self.clock.advance(self._gap_seconds)
        return ended

    def _step_seconds(self, plan: StepPlan) -> float:
        self._plan = plan
        seconds = self.timer.step_seconds(plan)
        return seconds if self._pace is None else seconds * self._pace(self.clock.now())

    def _leap(self, until: float) -> int:
        """How many steps it took."""
        now = self.clock.now()
        starts, ends, device_seconds = list[float](), list[float](), list[float]()
        features = StepFeatures(0, 0, 0, 0, 0)

        def times(what: Steady) -> StepTimes:
            nonlocal features, now
            num_decodes, gap_seconds, pace = len(what.running), self._gap_seconds, self._pace
            features = StepFeatures(0, num_decodes, 0, what.decode_context, num_decodes)
            limit = until if what.deadline is None else min(until, what.deadline)
            for seconds in self.timer.decode_seconds(features, what.most_steps):
                if now >= limit:
                    break
                if pace is not None:
                    seconds *= pace(now)
                starts.append(now)
                now += seconds
                ends.append(now)
                now += gap_seconds
                device_seconds.append(seconds)
            return starts, ends, device_seconds

        count = self._core.leap(times)
        if count:
            self.clock.advance_to(ends[count - 1] + self._gap_seconds)
            self.timer.take(features, count)
            self.num_steps += count
            self.num_leapt_steps += count
            self.streams.leap(ends[:count])
        return count

    def _news(self) -> list[Ended]:
        """What has come without a step, or with a leap."""
        if not self._core.has_news:
            return []
        result = self._core.news()
        return self._take(result, self.streams.ended(result.events))

    def _take(self, result: StepResult, finished: Sequence[tuple[Finished, Runs]]) -> list[Ended]:
        events = result.events
        if self._sink is not None and events:
            self._sink(self.number, events)
        for event in events:
            if type(event) is Scheduled and event.cached_tokens and not event.resumed:
                self._cached[event.request_id] = event.cached_tokens
        if not (finished or result.refusals):
            return []
        ended = [
            Ended(event.request_id, event.time, event, None, runs, self._cached.pop(event.request_id, 0))
            for event, runs in finished
        ]
        ended += [Ended(each.request_id, self.now, None, each, (), 0) for each in result.refusals]
        for each in ended:
            if each.finished is not None:
                self.num_preemptions += each.finished.num_preemptions
        return ended


def _link(cost: StepCost) -> HostLink:
    """Of what the engine measured; of a PCIe of 10 GB/s and blocks of 1 MiB where it never copied."""
    if cost.swap_block_seconds:
        return HostLink(bytes_per_block=1, bytes_per_second=1.0 / cost.swap_block_seconds)
    return HostLink(_UNSEEN_BLOCK_BYTES, _UNSEEN_COPY_BYTES_PER_SECOND)
