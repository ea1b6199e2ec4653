"""What the scheduler has learned of its engine and its traffic; a change of policy forgets none of it."""

from dataclasses import dataclass, field

from evenflow.core.copy_time import CopyTime
from evenflow.core.output_lengths import OutputLengths
from evenflow.core.rates import DrainRate
from evenflow.core.step_time import StepTimeModel


@dataclass(frozen=True, slots=True)
class Learned:
    step_time: StepTimeModel = field(default_factory=StepTimeModel)
    output_lengths: OutputLengths = field(default_factory=OutputLengths)
    copy_time: CopyTime = field(default_factory=CopyTime)
    drain_rate: DrainRate = field(default_factory=DrainRate)
