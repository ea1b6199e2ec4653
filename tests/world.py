"""Scenarios for the scheduler: requests arrive and are aborted at named times, and a step takes one second.

    world = World(blocks=4, block_size=4).arrive("a", prompt=5, max_tokens=3).abort("a", at=2).run()
    world.outputs["a"], world.events, world.timeline()

Scheduler and KV bookkeeping are the real ones. The executor is the shadow memory, so that a wrong block gives a wrong
token. Every step, whatever the test is about, must obey tests/laws.py.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from typing import Self, TypeVar

import laws
import picture
from evenflow.core.config import SchedulerConfig
from evenflow.core.errors import PolicyError, RequestError
from evenflow.core.events import Event, Finished
from evenflow.core.kv_cache import KVCacheManager
from evenflow.core.plan import RequestOutput, StepOutcome, StepPlan, TokenLogprobs
from evenflow.core.policy.spec import PolicySpec
from evenflow.core.request import FinishReason, Request, RequestId, SamplingParams
from evenflow.core.scheduler import Scheduler
from evenflow.engine.clock import VirtualClock
from evenflow.executors.shadow import ShadowExecutor
from facts import Facts

VOCAB_SIZE = 5000
MAX_STEPS = 10_000

EventT = TypeVar("EventT", bound=Event)


def tokens(name: str, count: int) -> tuple[int, ...]:
    """`count` token ids that depend on `name` only: different names give different prompts, a longer count extends."""
    return tuple(
        int.from_bytes(blake2b(f"{name}/{i}".encode(), digest_size=4).digest(), "little") % VOCAB_SIZE
        for i in range(count)
    )


@dataclass(frozen=True, slots=True)
class Abort:
    """`in_flight` aborts fall between the step's `schedule` and its `update`; others fall before `schedule`."""

    request_id: RequestId
    time: float
    in_flight: bool


@dataclass(slots=True, eq=False)
class World:
    blocks: int = 64
    block_size: int = 4
    budget: int = 16
    seqs: int = 8
    watermark: int = 0
    host_blocks: int = 0
    prefix_caching: bool = True
    max_model_len: int = 10_000
    policy: PolicySpec = field(default_factory=PolicySpec)

    scheduler: Scheduler = field(init=False)
    clock: VirtualClock = field(init=False, default_factory=VirtualClock)
    requests: dict[RequestId, Request] = field(init=False, default_factory=dict)
    events: list[Event] = field(init=False, default_factory=list)
    plans: list[StepPlan] = field(init=False, default_factory=list)
    outputs: dict[str, list[int]] = field(init=False, default_factory=lambda: defaultdict(list))
    prompt_logprobs: dict[str, list[TokenLogprobs]] = field(init=False, default_factory=lambda: defaultdict(list))
    last: dict[str, RequestOutput] = field(init=False, default_factory=dict)
    reasons: dict[str, FinishReason] = field(init=False, default_factory=dict)
    refused: dict[str, RequestError] = field(init=False, default_factory=dict)
    refused_policies: list[PolicyError] = field(init=False, default_factory=list)
    facts: Facts = field(init=False)
    columns: list[picture.Column] = field(init=False, default_factory=list)
    dropped_tokens: dict[str, int] = field(init=False, default_factory=lambda: defaultdict(int))
    execute: Callable[[StepPlan], StepOutcome] = field(init=False)
    _on_executor: set[RequestId] = field(init=False, default_factory=set)
    _arrivals: list[Request] = field(init=False, default_factory=list)
    _aborts: list[Abort] = field(init=False, default_factory=list)
    _changes: list[tuple[float, PolicySpec]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        kv = KVCacheManager(
            num_blocks=self.blocks,
            block_size=self.block_size,
            prefix_caching=self.prefix_caching,
            num_host_blocks=self.host_blocks,
        )
        config = SchedulerConfig(self.seqs, self.max_model_len, VOCAB_SIZE, self.watermark, self.budget)
        self.scheduler = Scheduler(config, kv, self.policy, self.events.append)
        self.facts = Facts(self.scheduler.policy)
        shadow = ShadowExecutor(
            num_blocks=self.blocks,
            block_size=self.block_size,
            vocab_size=VOCAB_SIZE,
            num_host_blocks=self.host_blocks,
        )
        self.execute = shadow.execute

    # ---- what will happen ------------------------------------------------------------------------------------------

    def arrive(
        self,
        name: str,
        *,
        prompt: int | Sequence[int],
        at: float = 0.0,
        max_tokens: int = 4,
        priority: int = 0,
        tenant: str = "",
        salt: str = "",
        service_class: str = "default",
        deadline: float | None = None,
    ) -> Self:
        """A request of `prompt` tokens of its own (a number), or of exactly these tokens."""
        prompt_token_ids = tokens(name, prompt) if isinstance(prompt, int) else tuple(prompt)
        return self.submit(
            Request(
                RequestId(name),
                prompt_token_ids,
                SamplingParams(max_tokens=max_tokens),
                float(at),
                priority=priority,
                tenant=tenant,
                cache_salt=salt,
                service_class=service_class,
                ttft_deadline=deadline,
            )
        )

    def submit(self, *requests: Request) -> Self:
        self._arrivals.extend(requests)
        self._arrivals.sort(key=lambda request: request.arrival_time)
        return self

    def abort(self, name: str, *, at: float, in_flight: bool = False) -> Self:
        self._aborts.append(Abort(RequestId(name), at, in_flight))
        return self

    def change(self, policy: PolicySpec, *, at: float) -> Self:
        """Another policy from the first step at this time on."""
        self._changes.append((at, policy))
        return self

    # ---- letting it happen -----------------------------------------------------------------------------------------

    def run(self) -> Self:
        """Until nobody is left; then the laws of a whole run must hold."""
        while self._arrivals or self.scheduler.has_work:
            if not self.scheduler.has_work:
                self.clock.advance_to(self._arrivals[0].arrival_time)
            self.step()
            assert len(self.plans) < MAX_STEPS, "it goes on for ever"
        laws.check_run(self)
        self.facts.check(self)
        return self

    def steps(self, count: int) -> Self:
        for _ in range(count):
            self.step()
        return self

    def step(self) -> None:
        """One second: who is due arrives or is aborted, then `schedule`, `execute`, `update`."""
        now = self.clock.now()
        self._apply_changes(now)
        self._accept_arrivals(now)
        aborted = self._apply_aborts(now, in_flight=False)
        self._collect(self.scheduler.expire(now=now))
        if not self.scheduler.has_work:
            self.clock.advance(1.0)
            return
        seen = len(self.events)
        plan = self.scheduler.schedule(now=now)
        self.scheduler.check()
        laws.check_plan(self, plan, self.events[seen:], self._on_executor)
        self.facts.see(self, plan, self.events[seen:])
        self.plans.append(plan)
        used = self.blocks - self.scheduler.kv.num_free_blocks
        running = {state.request.id for state in self.scheduler.running()}
        waiting = [s.request.id for s in self.scheduler.states() if s.request.id not in running]
        outcome = self.execute(plan)
        dropped = self._apply_aborts(now, in_flight=True)
        self._count_dropped(plan, dropped)
        self.columns.append(picture.Column(now, plan, tuple(waiting), (*aborted, *dropped), used, self.blocks))
        self.clock.advance(1.0)
        self._collect(self.scheduler.update(plan, outcome, now=self.clock.now()))
        self.scheduler.check()

    def _accept_arrivals(self, now: float) -> None:
        while self._arrivals and self._arrivals[0].arrival_time <= now:
            request = self._arrivals.pop(0)
            try:
                shed = self.scheduler.add(request, now=now)
            except RequestError as error:
                self.refused[request.id] = error
                continue
            self.requests[request.id] = request
            self._collect(shed)
            self.scheduler.check()

    def _apply_changes(self, now: float) -> None:
        due = [policy for time, policy in self._changes if time <= now]
        self._changes = [change for change in self._changes if change[0] > now]
        for policy in due:
            try:
                self.scheduler.reconfigure(policy, now=now)
            except PolicyError as error:
                self.refused_policies.append(error)
                continue
            self.policy = policy
            self.facts = self.facts.successor(self.scheduler.policy)
            self.scheduler.check()

    def _apply_aborts(self, now: float, *, in_flight: bool) -> list[RequestId]:
        """Those that were live. An abort that comes too late, or too early, is nobody's error."""
        due = [abort for abort in self._aborts if abort.in_flight == in_flight and abort.time <= now]
        self._aborts = [abort for abort in self._aborts if abort not in due]
        ended = []
        for abort in due:
            if self.scheduler.finish(abort.request_id, FinishReason.ABORT, now=now):
                ended.append(abort.request_id)
                self.reasons[abort.request_id] = FinishReason.ABORT
            self.scheduler.check()
        return ended

    def _count_dropped(self, plan: StepPlan, dropped: Iterable[RequestId]) -> None:
        """Tokens that were fed and whose result nobody will apply."""
        for chunk in plan.chunks:
            if chunk.request_id in dropped:
                self.dropped_tokens[chunk.request_id] += len(chunk.token_ids)

    def _collect(self, outputs: Iterable[RequestOutput]) -> None:
        for output in outputs:
            assert output.request_id not in self.reasons, "an output after the last one"
            self.outputs[output.request_id] += output.token_ids
            self.prompt_logprobs[output.request_id] += output.prompt_logprobs
            self.last[output.request_id] = output
            if output.finish_reason is not None:
                self.reasons[output.request_id] = output.finish_reason

    # ---- what happened ---------------------------------------------------------------------------------------------

    def of(self, kind: type[EventT]) -> list[EventT]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def finished(self, name: str) -> Finished:
        (event,) = (event for event in self.of(Finished) if event.request_id == name)
        return event

    def chunk_sizes(self, name: str) -> list[int]:
        return [len(c.token_ids) for plan in self.plans for c in plan.chunks if c.request_id == name]

    def timeline(self) -> str:
        return picture.draw(list(self.requests.values()), self.columns, self.reasons)


@lru_cache(maxsize=4096)
def _alone(request: Request) -> tuple[int, ...]:
    size = len(request.prompt_token_ids) + request.sampling.max_tokens
    world = World(blocks=1, block_size=size, budget=size, seqs=1, prefix_caching=False).submit(request).run()
    return tuple(world.outputs[request.id])


def alone(request: Request) -> tuple[int, ...]:
    """What this request says when it has the engine to itself, in one block and unhurried by any budget."""
    plain = replace(request, priority=0, tenant="", service_class="default", ttft_deadline=None)
    return _alone(replace(plain, id=RequestId("alone"), arrival_time=0.0))


def assert_each_said_what_it_says_alone(world: World) -> None:
    for request in world.requests.values():
        said, expected = tuple(world.outputs[request.id]), alone(request)
        if world.reasons[request.id] in (FinishReason.STOP, FinishReason.LENGTH):
            assert said == expected
        else:
            assert said == expected[: len(said)]
