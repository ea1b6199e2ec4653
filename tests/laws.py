"""What must hold in every step and after every run, whatever the workload, the policy and the sizes.

`check_plan` is called between `schedule` and `update`; `check_run` when nobody is left. Each law is re-derived from
public facts (plans, events, states), never from the scheduler's own counters.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from evenflow.core.events import Arrived, Event, Finished, FirstToken, Preempted, Scheduled
from evenflow.core.plan import EVERYBODY, Chunk, Door, StepPlan, WaitReason
from evenflow.core.policy.preemption import PreemptionMode
from evenflow.core.request import FinishReason, Request, RequestId, RequestState, RequestStatus
from evenflow.core.scheduler import Scheduler

EventT = TypeVar("EventT", bound=Event)


class Run(Protocol):
    """What the laws need to see of a run."""

    blocks: int
    host_blocks: int
    block_size: int
    budget: int
    seqs: int
    scheduler: Scheduler
    requests: dict[RequestId, Request]
    outputs: dict[str, list[int]]
    reasons: dict[str, FinishReason]
    dropped_tokens: dict[str, int]

    def of(self, kind: type[EventT]) -> list[EventT]: ...

    def chunk_sizes(self, name: str) -> list[int]: ...


def check_plan(run: Run, plan: StepPlan, events: Sequence[Event], on_executor: set[RequestId]) -> None:
    running = {state.request.id: state for state in run.scheduler.running()}
    live = {state.request.id: state for state in run.scheduler.states()}
    waiting = {request_id: state for request_id, state in live.items() if request_id not in running}
    _work_is_done(plan, live)
    _limits_are_kept(run, plan, running)
    _chunks_are_what_comes_next(run, plan, running)
    _everybody_left_out_has_a_reason(run, plan, running, waiting)
    _the_executor_knows_who_runs(plan, running, on_executor)
    _the_order_is_kept(run, plan, events, running, waiting)
    _copies_may_run_in_any_order(run, plan)


def _work_is_done(plan: StepPlan, live: dict[RequestId, RequestState]) -> None:
    assert bool(plan.chunks) == bool(live), "work exists, and the plan is empty"


def _limits_are_kept(run: Run, plan: StepPlan, running: dict[RequestId, RequestState]) -> None:
    kv = run.scheduler.kv
    fed = sum(len(chunk.token_ids) for chunk in plan.chunks)
    assert fed == plan.num_tokens <= plan.token_budget <= run.scheduler.policy.limits.max_num_batched_tokens
    assert len(running) <= run.seqs
    used = {block_id for request_id in running for block_id in kv.table(request_id).block_ids}
    assert kv.num_free_blocks + len(used) == run.blocks


def _chunks_are_what_comes_next(run: Run, plan: StepPlan, running: dict[RequestId, RequestState]) -> None:
    assert len({chunk.request_id for chunk in plan.chunks}) == len(plan.chunks)
    entered = {entry.request.id: entry for entry in plan.entered}
    for chunk in plan.chunks:
        state = running[chunk.request_id]
        end = chunk.start + len(chunk.token_ids)
        assert chunk.start == state.num_computed_tokens
        assert len(chunk.token_ids) > 0
        assert chunk.token_ids == tuple(state.token_ids[chunk.start : end])
        assert chunk.samples == (end == state.num_tokens)
        assert len(chunk.block_ids) * run.block_size >= end
    for request_id, entry in entered.items():
        assert entry.token_ids == tuple(running[request_id].token_ids)
        num_there = entry.num_cached_tokens + entry.num_swapped_in_tokens
        assert num_there == running[request_id].num_computed_tokens < len(entry.token_ids)
    assert plan.num_cached_tokens == sum(entry.num_cached_tokens for entry in plan.entered)
    decodes = [c for c in plan.chunks if _decodes(c, running[c.request_id]) and c.request_id not in entered]
    assert plan.num_decode_tokens == len(decodes)
    assert plan.attended_context_tokens == sum(
        position + 1 for c in plan.chunks for position in range(c.start, c.start + len(c.token_ids))
    )


def _copies_may_run_in_any_order(run: Run, plan: StepPlan) -> None:
    """All out first, then all in: no block is written twice, none is read that was written for somebody else."""
    into_host = [copy.target for copy in plan.swap_out]
    into_device = [copy.target for copy in plan.swap_in]
    assert len(set(into_host)) == len(into_host)
    assert len(set(into_device)) == len(into_device)
    assert not {copy.source for copy in plan.swap_in} & set(into_host)
    assert all(0 <= copy.source < run.blocks and 0 <= copy.target < run.host_blocks for copy in plan.swap_out)
    entered = {b for entry in plan.entered for b in run.scheduler.kv.table(entry.request.id).block_ids}
    assert set(into_device) <= entered, "a block is copied in that no newcomer has"


def _decodes(chunk: Chunk, state: RequestState) -> bool:
    return chunk.samples and len(chunk.token_ids) == 1 and chunk.start >= state.num_prompt_tokens


def _everybody_left_out_has_a_reason(
    run: Run, plan: StepPlan, running: dict[RequestId, RequestState], waiting: dict[RequestId, RequestState]
) -> None:
    fed = {chunk.request_id for chunk in plan.chunks}
    left_out = [each.request_id for each in plan.left_out]
    assert len(set(left_out)) == len(left_out)
    assert running.keys() - fed == set(left_out)
    shut = [door.flow for door in plan.doors]
    assert len(set(shut)) == len(shut)
    for request_id, state in waiting.items():
        assert {state.place.flow, state.place.lane, EVERYBODY} & set(shut), f"{request_id} waits and nobody says why"
    for door in plan.doors:
        place = waiting[door.head].place
        assert door.flow in (place.flow, place.lane, EVERYBODY)


def _the_executor_knows_who_runs(
    plan: StepPlan, running: dict[RequestId, RequestState], on_executor: set[RequestId]
) -> None:
    """An executor that believes `left` and `entered` holds exactly the running requests."""
    assert len(set(plan.left)) == len(plan.left)
    assert set(plan.left) <= on_executor
    assert set(plan.preempted) <= set(plan.left)
    on_executor.difference_update(plan.left)
    entered = {entry.request.id for entry in plan.entered}
    assert len(entered) == len(plan.entered)
    assert not entered & on_executor
    on_executor.update(entered)
    assert on_executor == running.keys()


def _the_order_is_kept(
    run: Run,
    plan: StepPlan,
    events: Sequence[Event],
    running: dict[RequestId, RequestState],
    waiting: dict[RequestId, RequestState],
) -> None:
    """Nobody enters before a more deserving request of the same flow, but to use what that one cannot; and victims
    come from the back of the order."""
    policy = run.scheduler.policy
    in_one_line = policy.fairness.name == "none" and not any(
        each.guaranteed_seats or each.guaranteed_blocks or each.max_seats < run.seqs or each.max_blocks < run.blocks
        for each in policy.classes
    )
    entered = {entry.request.id for entry in plan.entered}
    for request_id in entered:
        state = running[request_id]
        rivals = [other for other in waiting.values() if other.place.flow == state.place.flow]
        assert all(state.key < other.key or other.num_passed_by for other in rivals), f"{request_id} overtook somebody"
    if in_one_line:
        for door in plan.doors:
            _the_door_is_rightly_shut(run, plan, door, running, waiting[door.head])
    for state in (*waiting.values(), *running.values()):
        assert state.key == policy.key_of(state.request, state.key[-1]), "its place in line has changed"
    for state in waiting.values():
        holds_blocks = state.status is RequestStatus.SWAPPED
        assert (state.num_computed_tokens > 0) == holds_blocks, f"{state.request.id} claims what it has not"
        assert state.num_passed_by <= policy.spec.max_backfill
    preempted = [event for event in events if isinstance(event, Preempted)]
    assert [event.request_id for event in preempted] == list(plan.preempted)
    for event in preempted:
        winner = running.get(event.for_request, waiting.get(event.for_request))
        assert winner is not None
        assert event.for_request in entered or not entered, "memory was short, and somebody new came in"
        assert winner.key <= waiting[event.request_id].key
        if event.for_request in entered:
            assert policy.displaces(winner, waiting[event.request_id])
    if in_one_line and preempted:
        assert max(s.key for s in running.values()) < min(waiting[event.request_id].key for event in preempted)


def _the_door_is_rightly_shut(
    run: Run, plan: StepPlan, door: Door, running: dict[RequestId, RequestState], head: RequestState
) -> None:
    if door.reason is WaitReason.BUDGET and run.scheduler.policy.splits_prompts:
        # The last token of a prompt, like a decode, is a step's first claim whatever the order.
        fed = [running[c.request_id] for c in plan.chunks if not (c.samples and len(c.token_ids) == 1)]
        served = [state for state in fed if not state.place.is_long]  # the first long prompt has tokens of its own
        assert all(state.key < head.key for state in served), "a less deserving prefill kept it out"
    if door.reason is WaitReason.MAX_NUM_SEQS:
        assert len(running) >= run.scheduler.policy.limits.max_num_seqs
        last = max(running.values(), key=lambda state: state.key)
        assert not run.scheduler.policy.displaces(head, last), "a full house kept an urgent request out"


def check_run(run: Run) -> None:
    assert run.scheduler.kv.num_free_blocks == run.blocks
    assert run.scheduler.kv.num_free_host_blocks == run.host_blocks
    assert [e.request_id for e in run.of(Arrived)] == list(run.requests)
    assert sorted(e.request_id for e in run.of(Finished)) == sorted(run.requests), "one Finished each"
    assert run.reasons == {e.request_id: e.reason for e in run.of(Finished)}
    for finished in run.of(Finished):
        _its_history_adds_up(run, finished)
        _its_tokens_are_conserved(run, finished)


def _its_history_adds_up(run: Run, finished: Finished) -> None:
    request_id = finished.request_id
    scheduled = [e for e in run.of(Scheduled) if e.request_id == request_id]
    preempted = [e for e in run.of(Preempted) if e.request_id == request_id]
    output = run.outputs.get(request_id, [])
    assert finished.num_output_tokens == len(output)
    assert finished.num_prompt_tokens == len(run.requests[request_id].prompt_token_ids)
    assert finished.num_preemptions == len(preempted)
    assert [e.resumed for e in scheduled] == [index > 0 for index in range(len(scheduled))]
    assert sum(e.request_id == request_id for e in run.of(FirstToken)) == bool(output)
    if finished.reason is FinishReason.ABORT:
        assert len(scheduled) - len(preempted) in (0, 1)
    elif finished.reason in (FinishReason.EXPIRED, FinishReason.SHED):
        assert not scheduled, "it had begun to run"
    else:
        assert len(scheduled) - len(preempted) == 1
        assert finished.num_computed_tokens == finished.num_prompt_tokens + len(output) - 1
    if finished.reason is FinishReason.LENGTH:
        assert len(output) == run.requests[request_id].sampling.max_tokens


def _its_tokens_are_conserved(run: Run, finished: Finished) -> None:
    """fed = computed - cached - swapped in + lost + swapped out; `computed` is prompt + output - 1 unless it was
    aborted, and an abort in flight also drops what was being fed."""
    request_id = finished.request_id
    seats = [e for e in run.of(Scheduled) if e.request_id == request_id]
    preempted = [e for e in run.of(Preempted) if e.request_id == request_id]
    found = sum(e.cached_tokens + e.swapped_in_tokens for e in seats)
    left_behind = sum(e.lost_tokens + e.swapped_out_tokens for e in preempted)
    dropped = run.dropped_tokens.get(request_id, 0)
    fed = sum(run.chunk_sizes(request_id))
    assert fed == finished.num_computed_tokens - found + left_behind + dropped
    for event, resumed in zip(preempted, seats[1:], strict=False):
        if event.mode is PreemptionMode.SWAP:
            assert event.lost_tokens == 0 < event.swapped_out_tokens
            assert resumed.cached_tokens + resumed.swapped_in_tokens >= event.swapped_out_tokens, "swapped, and lost"
        else:
            assert event.swapped_out_tokens == 0 == resumed.swapped_in_tokens
