"""The latest events, kept in memory: what a server can show without a file."""

from collections import deque
from collections.abc import Sequence
from itertools import islice

from evenflow.core.events import Event


class RecentEvents:
    """The latest events, numbered from 0 on, so that a reader can ask for what it has not seen."""

    def __init__(self, capacity: int) -> None:
        assert capacity > 0
        self._events: deque[Event] = deque(maxlen=capacity)
        self._num_seen = 0

    def extend(self, events: Sequence[Event]) -> None:
        self._events.extend(events)
        self._num_seen += len(events)

    @property
    def next_number(self) -> int:
        """The number that the next event will have."""
        return self._num_seen

    def since(self, number: int) -> list[Event]:
        """Events of this number and later, as far as they are still kept."""
        num_missed = max(0, number - (self._num_seen - len(self._events)))
        return list(islice(self._events, num_missed, None))
