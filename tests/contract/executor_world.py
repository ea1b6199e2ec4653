"""Requests through the real scheduler on any executor."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from evenflow.core.config import SchedulerConfig
from evenflow.core.events import Event, Preempted, Scheduled
from evenflow.core.kv_cache import KVCacheManager
from evenflow.core.plan import StepOutcome, StepPlan, TokenLogprobs
from evenflow.core.policy.spec import PolicySpec
from evenflow.core.ports import Executor
from evenflow.core.request import FinishReason, Request, RequestId
from evenflow.core.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Shape:
    blocks: int
    block_size: int
    budget: int
    seqs: int
    vocab_size: int
    prefix_caching: bool = True
    order: str = "fcfs"
    host_blocks: int = 0


@dataclass(slots=True, eq=False)
class Played:
    outputs: dict[RequestId, list[int]] = field(default_factory=lambda: defaultdict(list))
    logprobs: dict[RequestId, list[TokenLogprobs]] = field(default_factory=lambda: defaultdict(list))
    prompt_logprobs: dict[RequestId, list[TokenLogprobs]] = field(default_factory=lambda: defaultdict(list))
    steps: list[tuple[StepPlan, StepOutcome]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    @property
    def num_preemptions(self) -> int:
        return sum(isinstance(event, Preempted) for event in self.events)

    @property
    def num_swapped_in_tokens(self) -> int:
        return sum(event.swapped_in_tokens for event in self.events if isinstance(event, Scheduled))

    @property
    def num_cached_tokens(self) -> int:
        return sum(plan.num_cached_tokens for plan, _ in self.steps)

    @property
    def num_partial_chunks(self) -> int:
        return sum(not chunk.samples for plan, _ in self.steps for chunk in plan.chunks)


def play(
    executor: Executor, requests: Sequence[Request], shape: Shape, *, aborts: Mapping[RequestId, int] | None = None
) -> Played:
    """A step takes one second. `aborts` says after which step a request is aborted, between its plan and its update."""
    played = Played()
    kv = KVCacheManager(
        num_blocks=shape.blocks,
        block_size=shape.block_size,
        prefix_caching=shape.prefix_caching,
        num_host_blocks=shape.host_blocks,
    )
    policy = PolicySpec(order=shape.order, max_num_batched_tokens=shape.budget, preemption="swap")
    config = SchedulerConfig(shape.seqs, max_model_len=10_000, vocab_size=shape.vocab_size)
    scheduler = Scheduler(config, kv, policy, played.events.append)
    arrivals = sorted(requests, key=lambda request: request.arrival_time)
    now = 0.0
    while arrivals or scheduler.has_work:
        while arrivals and (arrivals[0].arrival_time <= now or not scheduler.has_work):
            scheduler.add(arrivals.pop(0), now=now)
        plan = scheduler.schedule(now=now)
        outcome = executor.execute(plan)
        for request_id, step in (aborts or {}).items():
            if step == plan.step:
                scheduler.finish(request_id, FinishReason.ABORT, now=now)
        now += 1.0
        played.steps.append((plan, outcome))
        for output in scheduler.update(plan, outcome, now=now):
            played.outputs[output.request_id] += output.token_ids
            played.prompt_logprobs[output.request_id] += output.prompt_logprobs
            if output.logprobs is not None:
                played.logprobs[output.request_id].append(output.logprobs)
    return played
