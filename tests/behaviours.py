"""Which behaviours of the scheduler a run showed, and how often: for tests that must not miss their subject."""

from collections import Counter

from evenflow.core.events import Preempted, Scheduled
from evenflow.core.plan import WaitReason
from evenflow.core.policy.preemption import PreemptionMode
from evenflow.core.request import FinishReason, RequestId
from world import World


def shown_by(world: World) -> Counter[str]:
    shown: Counter[str] = Counter()
    _count_memory(world, shown)
    _count_steps(world, shown)
    _count_ends(world, shown)
    return shown


def _count_memory(world: World, shown: Counter[str]) -> None:
    newcomers = {plan.step: {entry.request.id for entry in plan.entered} for plan in world.plans}
    swapped_before: set[RequestId] = set()
    for preempted in world.of(Preempted):
        shown["displaced" if preempted.for_request in newcomers[preempted.step] else "preempted for memory"] += 1
        shown["preempted itself"] += preempted.for_request == preempted.request_id
        swapped = preempted.mode is PreemptionMode.SWAP
        shown["swapped out"] += swapped
        shown["swapped out again"] += swapped and preempted.request_id in swapped_before
        shown["swapped out in mid-prompt"] += swapped and preempted.swapped_out_tokens < len(
            world.requests[preempted.request_id].prompt_token_ids
        )
        shown["no room to swap"] += (
            world.policy.preemption == "swap" and world.host_blocks > 0 and not swapped and preempted.lost_tokens > 0
        )
        if swapped:
            swapped_before.add(preempted.request_id)
    for scheduled in world.of(Scheduled):
        if scheduled.cached_tokens:
            shown["hit on resume" if scheduled.resumed else "hit on arrival"] += 1
        prompt = world.requests[scheduled.request_id].prompt_token_ids
        shown["swapped in"] += scheduled.swapped_in_tokens > 0
        shown["swapped in behind a hit"] += scheduled.swapped_in_tokens > 0 and scheduled.cached_tokens > 0
        shown["swapped in inside a block"] += (
            scheduled.swapped_in_tokens > 0
            and (scheduled.cached_tokens + scheduled.swapped_in_tokens) % world.block_size > 0
        )
        shown["hit up to the last token"] += scheduled.cached_tokens == len(prompt) - 1 > 0
        shown["hit on an answer"] += scheduled.cached_tokens > len(prompt)


def _count_steps(world: World, shown: Counter[str]) -> None:
    multi_flow = world.policy.fairness != "none"
    for plan in world.plans:
        shown["fewer blocks out than computed"] += sum(
            -(-e.swapped_out_tokens // world.block_size) for e in world.of(Preempted) if e.step == plan.step
        ) > len(plan.swap_out)
        shown["chunk ended inside a block"] += any(
            not c.samples and (c.start + len(c.token_ids)) % world.block_size for c in plan.chunks
        )
        shown["prefill beside decode"] += plan.num_prefill_tokens > 0 and plan.num_decode_tokens > 0
        shown["left out while running"] += len(plan.left_out)
        for door in plan.doors:
            shown[f"door: {door.reason.value}"] += 1
        shown["came in beside a shut door"] += multi_flow and bool(plan.doors) and bool(plan.entered)
        shown["door: kv, with a watermark"] += world.watermark > 0 and any(
            d.reason is WaitReason.KV for d in plan.doors
        )


def _count_ends(world: World, shown: Counter[str]) -> None:
    ran = {scheduled.request_id for scheduled in world.of(Scheduled)}
    evicted: set[RequestId] = {preempted.request_id for preempted in world.of(Preempted)}
    last_seat = {scheduled.request_id: scheduled.step for scheduled in world.of(Scheduled)}
    swapped = {
        preempted.request_id
        for preempted in world.of(Preempted)
        if preempted.mode is PreemptionMode.SWAP and preempted.step > last_seat[preempted.request_id]
    }
    for request_id, reason in world.reasons.items():
        shown[f"ended by {reason.value}"] += 1
        aborted = reason is FinishReason.ABORT
        shown["aborted before it ran"] += aborted and request_id not in ran
        shown["aborted while swapped"] += aborted and request_id in swapped
        shown["aborted in flight"] += aborted and request_id in world.dropped_tokens
        shown["stopped after preemption"] += reason is FinishReason.STOP and RequestId(request_id) in evicted
