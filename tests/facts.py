"""What a run did, held against what its policy promised.

`Facts` sees every plan of a run and remembers the worst of each kind; `check` compares them with `policy.bounds()`, by
name. A bound that the policy publishes and nobody here knows is an error, so no promise goes untested.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Protocol, TypeVar

from evenflow.core.events import Event, Preempted, Scheduled
from evenflow.core.plan import Chunk, StepPlan
from evenflow.core.policy.scheduling import SchedulingPolicy
from evenflow.core.request import RequestId, RequestState
from evenflow.core.scheduler import Scheduler

EventT = TypeVar("EventT", bound=Event)
Tenant = tuple[str, str]  # lane, tenant


class Run(Protocol):
    blocks: int
    prefix_caching: bool
    scheduler: Scheduler
    outputs: dict[str, list[int]]

    def of(self, kind: type[EventT]) -> list[EventT]: ...


@dataclass(slots=True, eq=False)
class Facts:
    """`worst` is the largest value seen of each kind.

    A policy that replaced another finds its classes and long prompts as they are. What it promises of them holds once
    it has held (`unsettled` until then).
    """

    policy: SchedulingPolicy
    sizes: dict[RequestId, int] = field(default_factory=dict)
    unsettled: set[str] = field(default_factory=set)
    worst: dict[str, float] = field(default_factory=lambda: {"memory_preemptions": 0})
    seen: Counter[str] = field(default_factory=Counter)
    _gaps: Counter[RequestId] = field(default_factory=Counter)
    _first_long: Counter[RequestId] = field(default_factory=Counter)
    _service: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _spans: dict[tuple[Tenant, Tenant], list[float]] = field(default_factory=dict)

    def see(self, run: Run, plan: StepPlan, events: Sequence[Event]) -> None:
        """Between `schedule` and `update`, so that states still stand as the plan found them."""
        running = {state.request.id: state for state in run.scheduler.running()}
        waiting = [state for state in run.scheduler.states() if state.request.id not in running]
        fed = {chunk.request_id: chunk for chunk in plan.chunks}
        entered = {entry.request.id for entry in plan.entered}
        self._most("step_tokens", plan.num_tokens)
        self._see_decodes(running, fed, entered)
        self._see_prefills(running, fed, entered)
        self._see_long_prompts(running, fed)
        self._see_overtaking(running, waiting, entered)
        self._see_preemptions(run, running, waiting, events, entered)
        self._see_classes(run, running)
        self._see_service(running, waiting, plan, events)

    def _most(self, name: str, value: float) -> None:
        self.worst[name] = max(self.worst.get(name, value), value)

    def _see_decodes(
        self, running: Mapping[RequestId, RequestState], fed: Mapping[RequestId, Chunk], entered: set[RequestId]
    ) -> None:
        for request_id in tuple(self._gaps):
            if request_id not in running or request_id in fed:
                del self._gaps[request_id]
        for request_id, state in running.items():
            if request_id not in fed and request_id not in entered and state.num_remaining_tokens == 1:
                self._gaps[request_id] += 1
                self._most("decode_gap_steps", self._gaps[request_id])

    def _see_prefills(
        self, running: Mapping[RequestId, RequestState], fed: Mapping[RequestId, Chunk], entered: set[RequestId]
    ) -> None:
        decodes = {i for i, state in running.items() if state.num_remaining_tokens == 1 and i not in entered}
        wanted = sum(state.num_remaining_tokens for i, state in running.items() if i not in decodes)
        tokens = sum(len(chunk.token_ids) for i, chunk in fed.items() if i not in decodes)
        if decodes:
            self._most("prefill_share", tokens)
        least = self._value("prefill_tokens_per_step")
        if least is not None and wanted:
            assert tokens >= min(least, wanted), "prefills got less than their share"
            self.seen["prefill_tokens_per_step"] += 1

    def _see_long_prompts(self, running: Mapping[RequestId, RequestState], fed: Mapping[RequestId, Chunk]) -> None:
        prefills = [state for state in running.values() if state.num_remaining_tokens > 1]
        long = [state for state in prefills if state.place.is_long]
        if not long:
            return
        if len(long) <= self.policy.long_prompts.max_in_progress:
            self.unsettled.discard("long_prefills")
        if "long_prefills" not in self.unsettled:
            self._most("long_prefills", len(long))
        first = min(long, key=lambda state: state.key)
        self._first_long[first.request.id] += 1
        self._most("long_prefill_steps", self._first_long[first.request.id])
        if any(
            len(fed[s.request.id].token_ids) < s.num_remaining_tokens if s.request.id in fed else True
            for s in prefills
            if not s.place.is_long
        ):
            tokens = sum(len(fed[state.request.id].token_ids) for state in long if state.request.id in fed)
            self._most("long_prompt_share", tokens)

    def _see_overtaking(
        self, running: Mapping[RequestId, RequestState], waiting: Sequence[RequestState], entered: set[RequestId]
    ) -> None:
        for state in waiting:
            self._most("passed_by", state.num_passed_by)
            for request_id in entered:
                passer = running[request_id]
                if passer.place.flow == state.place.flow and passer.key < state.key:
                    later = passer.request.arrival_time - state.request.arrival_time
                    self._most("overtake_seconds", later)

    def _see_preemptions(
        self,
        run: Run,
        running: Mapping[RequestId, RequestState],
        waiting: Sequence[RequestState],
        events: Sequence[Event],
        entered: set[RequestId],
    ) -> None:
        states = {**running, **{state.request.id: state for state in waiting}}
        sizes = {i: len(run.scheduler.kv.table(i).block_ids) for i in running}
        preempted = [event for event in events if isinstance(event, Preempted)]
        for event in preempted:
            sizes[event.request_id] = self.sizes[event.request_id] + 1  # it may have grown in this step
        here = {i: states[i].place.service_class for i in sizes if i not in entered}
        for event in preempted:
            self.worst["memory_preemptions"] += event.for_request not in entered
            theirs = self.policy.classes.of(here[event.request_id])
            if theirs.name != states[event.for_request].place.service_class:
                own = [i for i, name in here.items() if name == theirs.name]
                within_seats = len(own) <= theirs.guaranteed_seats
                within_blocks = sum(sizes[i] for i in own) <= theirs.guaranteed_blocks
                assert not (within_seats and within_blocks), f"{theirs.name} lost what it was guaranteed"
                self.seen["took from another class"] += 1
            del here[event.request_id]
        self.sizes = {i: sizes[i] for i in running}

    def _see_classes(self, run: Run, running: Mapping[RequestId, RequestState]) -> None:
        free_seats = self.policy.limits.max_num_seqs - len(running)
        free_blocks = run.scheduler.kv.num_free_blocks
        for each in self.policy.classes:
            own = [i for i, state in running.items() if state.place.service_class == each.name]
            blocks = sum(len(run.scheduler.kv.table(i).block_ids) for i in own)
            if len(own) <= each.max_seats and blocks <= each.max_blocks:
                self.unsettled.discard(each.name)
            if each.name not in self.unsettled:
                self._most(f"{each.name}_max_seats", len(own))
                self._most(f"{each.name}_max_blocks", blocks)
            free_seats -= max(0, each.guaranteed_seats - len(own))
            free_blocks -= max(0, each.guaranteed_blocks - blocks)
            for what in ("seats", "blocks"):
                self.seen[f"{each.name}_guaranteed_{what}"] += 1
        if free_seats >= 0 and free_blocks >= 0:
            self.unsettled.discard("guarantees")
        if "guarantees" not in self.unsettled:
            assert free_seats >= 0, "a guaranteed seat is taken"
            assert free_blocks >= 0 or run.prefix_caching, "a guaranteed block is taken"

    def _see_service(
        self,
        running: Mapping[RequestId, RequestState],
        waiting: Sequence[RequestState],
        plan: StepPlan,
        events: Sequence[Event],
    ) -> None:
        spec = self.policy.spec
        if spec.fairness != "vtc":
            return
        weights = dict(spec.tenant_weights)
        backlogged = sorted({(state.place.lane, state.request.tenant) for state in waiting})
        pairs = {pair for pair in combinations(backlogged, 2) if pair[0][0] == pair[1][0]}
        self._spans = {pair: span for pair, span in self._spans.items() if pair in pairs}

        def serve(state: RequestState, amount: float) -> None:
            self._service[f"{state.key[0]}/{state.request.tenant}"] += amount / weights.get(state.request.tenant, 1.0)

        for event in events:
            if isinstance(event, Scheduled) and not event.resumed:
                state = running[event.request_id]
                serve(state, spec.input_weight * (state.num_tokens - event.cached_tokens))
        for chunk in plan.chunks:
            if chunk.samples:
                serve(running[chunk.request_id], spec.output_weight)
        ranks = {state.place.lane: state.key[0] for state in waiting}
        for one, other in pairs:
            rank = ranks[one[0]]
            ahead = self._service[f"{rank}/{one[1]}"] - self._service[f"{rank}/{other[1]}"]
            span = self._spans.setdefault((one, other), [ahead, ahead])
            span[:] = [min(span[0], ahead), max(span[1], ahead)]
            self._most("service_gap", span[1] - span[0])

    def successor(self, policy: SchedulingPolicy) -> "Facts":
        """Of a policy that replaces this one in mid-run."""
        return Facts(policy, self.sizes, {"long_prefills", "guarantees", *(each.name for each in policy.classes)})

    def _value(self, name: str) -> float | None:
        return next((bound.value for bound in self.policy.bounds() if bound.name == name), None)

    def check(self, run: Run) -> None:
        """Every bound that the policy publishes, against the worst that was seen."""
        for bound in self.policy.bounds():
            if bound.value is None or bound.name in NOT_PROMISED or bound.name in self.seen:
                continue
            if bound.name in self.worst:
                self.seen[bound.name] += 1
                assert self.worst[bound.name] <= bound.value, f"{bound}: {self.worst[bound.name]}"
            else:
                assert bound.name in KNOWN or bound.name.endswith(OF_A_CLASS), f"nobody checks {bound}"


NOT_PROMISED = {"itl_target"}
"""A prediction; unit/core/test_step_time.py says how good it is."""

OF_A_CLASS = ("_guaranteed_seats", "_guaranteed_blocks", "_max_seats", "_max_blocks")
KNOWN = {
    "step_tokens",
    "overtake_seconds",
    "passed_by",
    "decode_gap_steps",
    "prefill_tokens_per_step",
    "prefill_share",
    "long_prefills",
    "long_prefill_steps",
    "long_prompt_share",
    "memory_preemptions",
    "service_gap",
}
