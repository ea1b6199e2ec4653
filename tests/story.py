"""Events of short, hand-told runs: what happens in which step, with every time named."""

from collections.abc import Sequence

from evenflow.core.events import (
    Arrived,
    Event,
    Finished,
    FirstToken,
    Preempted,
    Scheduled,
    StepRecord,
)
from evenflow.core.plan import Door, LeftOut, WaitReason
from evenflow.core.policy.preemption import PreemptionMode
from evenflow.core.request import FinishReason, RequestId


def arrived(name: str, time: float, *, accepted: float | None = None, prompt: int = 8, max_tokens: int = 16) -> Arrived:
    return Arrived(
        time=time,
        request_id=RequestId(name),
        accepted_time=time if accepted is None else accepted,
        num_prompt_tokens=prompt,
        max_tokens=max_tokens,
        flow="all",
        tenant="",
        service_class="default",
        priority=0,
    )


def scheduled(
    name: str, step: int, time: float, *, cached: int = 0, resumed: bool = False, swapped_in: int = 0
) -> Scheduled:
    return Scheduled(time, step, RequestId(name), cached, resumed, swapped_in)


def preempted(name: str, step: int, time: float, *, lost: int = 8) -> Preempted:
    return Preempted(time, step, RequestId(name), lost, RequestId("other"), PreemptionMode.RECOMPUTE, 0)


def swapped(name: str, step: int, time: float, *, kept: int = 8) -> Preempted:
    return Preempted(time, step, RequestId(name), 0, RequestId("other"), PreemptionMode.SWAP, kept)


def first_token(name: str, step: int, time: float) -> FirstToken:
    return FirstToken(time, step, RequestId(name))


def finished(
    name: str, step: int, time: float, *, reason: FinishReason = FinishReason.LENGTH, outputs: int = 1
) -> Finished:
    return Finished(time, step, RequestId(name), reason, 8, outputs, 8 + outputs - 1, 0)


def step(
    number: int,
    start: float,
    end: float,
    *,
    emitted: str = "",
    fed: str | None = None,
    left_out: str = "",
    door: WaitReason | None = None,
    head: str = "z",
    running: int = 1,
    waiting: int = 0,
    prefill: int = 0,
    swapped_out: int = 0,
    swapped_in: int = 0,
    host_blocks: int = 0,
) -> StepRecord:
    """`emitted`, `fed` (those who emitted, if not given) and `left_out` are requests of one letter each."""
    names = emitted if fed is None else fed
    doors = (Door("all", RequestId(head), door),) if door is not None else ()
    return StepRecord(
        step=number,
        start=start,
        end=end,
        prefill_tokens=prefill,
        decode_tokens=len(names),
        attended_context_tokens=0,
        decode_context_tokens=0,
        num_scheduled=len(names),
        running=running,
        waiting=waiting,
        kv_blocks_used=2,
        kv_blocks_total=8,
        host_blocks_used=host_blocks,
        host_blocks_total=4,
        token_budget=16,
        preemptions=0,
        cached_tokens=0,
        swapped_out_blocks=swapped_out,
        swapped_in_blocks=swapped_in,
        schedule_seconds=0.0001,
        device_seconds=end - start,
        swap_seconds=(swapped_out + swapped_in) / 8,
        scheduled=tuple((RequestId(name), 1) for name in names),
        emitted=tuple(RequestId(name) for name in emitted),
        left_out=tuple(LeftOut(RequestId(name), WaitReason.BUDGET) for name in left_out),
        doors=doors,
    )


def alone(name: str = "a") -> Sequence[Event]:
    """One request: received at 0, accepted at 1, runs from 2, tokens at 3, 5 and 9."""
    return [
        arrived(name, 0.0, accepted=1.0),
        scheduled(name, 1, 2.0, cached=4),
        first_token(name, 1, 3.0),
        step(1, 2.0, 3.0, emitted=name, prefill=4),
        step(2, 4.0, 5.0, emitted=name),
        finished(name, 3, 9.0, outputs=3),
        step(3, 8.0, 9.0, emitted=name, running=0),
    ]
