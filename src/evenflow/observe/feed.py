"""One fold of the events for all who want its spans, some events at a time.

Nobody looks between two steps, and what a fold does costs a third when it is done for some dozens of steps in one go:
the code and the tables that it needs are then in the caches, which the model's weights have just swept.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from evenflow.core.events import Event, Preempted, Rejected, StepRecord
from evenflow.observe.fold import SpanFold
from evenflow.observe.spans import RequestSpan


@dataclass(slots=True)
class Folded:
    """What a number of events told, each kind in the order of the log; see `SpanUpdate`."""

    steps: list[StepRecord] = field(default_factory=list)
    preempted: list[Preempted] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    admitted: list[RequestSpan] = field(default_factory=list)
    first_tokens: list[RequestSpan] = field(default_factory=list)
    token_gaps: list[tuple[float, int]] = field(default_factory=list)
    finished: list[RequestSpan] = field(default_factory=list)


class SpanFeed:
    """One fold for all who want its spans: each taker gets what the events told, in order.

    It does not matter to a taker how many events come at once, except that many at once cost less. The takers share the
    spans, and only read them; what a span had when it was admitted, or got its first token, it has at the end too.
    """

    def __init__(self, spans: SpanFold, takers: Sequence[Callable[[Folded], None]]) -> None:
        self._spans = spans
        self._takers = tuple(takers)

    def feed(self, events: Iterable[Event]) -> None:
        folded = Folded()
        fold = self._spans.feed
        for event in events:
            admitted, first_tokens, finished, token_gaps = fold(event)
            match event:
                case StepRecord():
                    folded.steps.append(event)
                    folded.token_gaps += token_gaps
                    folded.first_tokens += first_tokens
                case Preempted():
                    folded.preempted.append(event)
                case Rejected():
                    folded.rejected.append(event)
                case _:
                    pass
            if admitted is not None:
                folded.admitted.append(admitted)
            folded.finished += finished
        for take in self._takers:
            take(folded)
