"""One fold of the events for all who want its spans, some events at a time.

Nobody looks between two steps, and what a fold does costs a third when it is done for some dozens of steps in one go:
the code and the tables that it needs are then in the caches, which the model's weights have just swept.
"""

from collections.abc import Callable, Iterable, Sequence

from evenflow.core.events import Event
from evenflow.observe.fold import SpanFold
from evenflow.observe.folded import Folded


class SpanFeed:
    """One fold for all who want its spans: each taker gets what the events told, in order.

    It does not matter to a taker how many events come at once, except that many at once cost less. The takers share the
    spans, and only read them; what a span had when it was admitted, or got its first token, it has at the end too.
    """

    def __init__(self, spans: SpanFold, takers: Sequence[Callable[[Folded], None]]) -> None:
        self._spans = spans
        self._takers = tuple(takers)

    def feed(self, events: Iterable[Event]) -> None:
        folded = self._spans.feed_all(events)
        for take in self._takers:
            take(folded)
