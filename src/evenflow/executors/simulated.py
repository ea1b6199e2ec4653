"""An executor whose only effect is that time passes: the same scheduler and loop then run on a virtual clock.

It emits token 0 for whoever samples; a simulated request ends by `max_tokens`, so give it `ignore_eos`.
"""

from collections.abc import Callable

from evenflow.core.plan import StepOutcome, StepPlan


class SimulatedExecutor:
    """`step_seconds` is any cost model; `advance` moves the clock that the loop reads (`VirtualClock.advance`)."""

    def __init__(self, step_seconds: Callable[[StepPlan], float], advance: Callable[[float], None]) -> None:
        self._step_seconds = step_seconds
        self._advance = advance

    def execute(self, plan: StepPlan, /) -> StepOutcome:
        seconds = self._step_seconds(plan)
        self._advance(seconds)
        return StepOutcome({chunk.request_id: 0 for chunk in plan.chunks if chunk.samples}, device_seconds=seconds)
