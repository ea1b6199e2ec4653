"""An executor whose only effect is that time passes: the same scheduler and loop then run on a virtual clock.

It emits token 0 for whoever samples; a simulated request ends by `max_tokens`, so give it `ignore_eos`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from evenflow.core.plan import StepOutcome, StepPlan


@dataclass(frozen=True, slots=True)
class HostLink:
    """What swapping takes: bytes over bandwidth, and a fixed time for each step that copies anything at all."""

    bytes_per_block: int
    bytes_per_second: float
    latency_seconds: float = 0.0

    def swap_seconds(self, plan: StepPlan) -> float:
        num_blocks = len(plan.swap_out) + len(plan.swap_in)
        if num_blocks == 0:
            return 0.0
        return self.latency_seconds + num_blocks * self.bytes_per_block / self.bytes_per_second


class SimulatedExecutor:
    """`step_seconds` is any cost model of the chunks; `advance` moves the clock that the loop reads
    (`VirtualClock.advance`). Copies to and from the host come on top: they and the chunks share the device's memory."""

    def __init__(
        self, step_seconds: Callable[[StepPlan], float], advance: Callable[[float], None], link: HostLink | None = None
    ) -> None:
        self._step_seconds = step_seconds
        self._advance = advance
        self._link = link

    def execute(self, plan: StepPlan, /) -> StepOutcome:
        swap_seconds = 0.0
        if plan.swap_out or plan.swap_in:
            assert self._link is not None, "the plan swaps, and there is no link"
            swap_seconds = self._link.swap_seconds(plan)
        seconds = self._step_seconds(plan) + swap_seconds
        self._advance(seconds)
        sampled = {request_id: 0 for request_id, _, _, _, samples in plan.chunks if samples}
        return StepOutcome(sampled, device_seconds=seconds, swap_seconds=swap_seconds)
