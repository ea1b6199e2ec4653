"""What the core and the loop ask of the world around them."""

from collections.abc import Callable
from typing import Protocol

from evenflow.core.events import Event
from evenflow.core.plan import StepOutcome, StepPlan

EventSink = Callable[[Event], None]


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since an arbitrary origin; never goes back."""
        ...


class Executor(Protocol):
    def execute(self, plan: StepPlan, /) -> StepOutcome:
        """Run the plan and return when its tokens are known. Takes as long as its clock says it takes."""
        ...
