"""What a fold of the events told: spans that went on, and the facts that are counted as they are."""

from dataclasses import dataclass, field

from evenflow.core.events import Preempted, Rejected, StepRecord
from evenflow.observe.spans import RequestSpan


@dataclass(slots=True)
class Folded:
    """What a number of events told, each kind in the order of the log.

    `admitted` got their first seat, `first_tokens` their first token. `token_gaps` is (seconds, number of such gaps).
    """

    steps: list[StepRecord] = field(default_factory=list)
    preempted: list[Preempted] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    admitted: list[RequestSpan] = field(default_factory=list)
    first_tokens: list[RequestSpan] = field(default_factory=list)
    token_gaps: list[tuple[float, int]] = field(default_factory=list)
    finished: list[RequestSpan] = field(default_factory=list)
