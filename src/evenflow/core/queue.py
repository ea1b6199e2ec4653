"""One flow of waiting requests: a heap ordered by the policy's key.

Everything is O(log n) in the number waiting. A request that leaves from the middle (an abort, or one that fits where
the head does not) stays in the heap as a dead entry until it surfaces, or until the dead outnumber the living and the
heap is rebuilt.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from evenflow.core.request import OrderKey, RequestId, RequestState

_Entry = tuple[OrderKey, RequestState]


class FlowQueue:
    """Keys must be unique, so that two heap entries never compare by their states."""

    __slots__ = ("_heap", "_live")

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._live: dict[RequestId, _Entry] = {}

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[RequestState]:
        """In the order in which they came."""
        return (state for _, state in self._live.values())

    def push(self, state: RequestState) -> None:
        assert state.request.id not in self._live
        entry = (state.key, state)
        heappush(self._heap, entry)
        self._live[state.request.id] = entry

    def head(self) -> RequestState:
        """The most deserving; somebody must be waiting."""
        return self._heap[0][1]

    def followers(self, count: int) -> list[RequestState]:
        """Up to `count` requests behind the head, most deserving first."""
        if not count:
            return []
        heap, found = self._heap, list[RequestState]()
        frontier = [(heap[0][0], 0)]
        while frontier and len(found) <= count:
            _, index = heappop(frontier)
            if self._is_live(heap[index]):
                found.append(heap[index][1])
            for child in (2 * index + 1, 2 * index + 2):
                if child < len(heap):
                    heappush(frontier, (heap[child][0], child))
        return found[1:]

    def remove(self, state: RequestState) -> None:
        del self._live[state.request.id]
        if not self._live:
            self._live.clear()  # the table that a burst has left
        if len(self._heap) > 2 * len(self._live) + 8:
            self._heap = [entry for entry in self._heap if self._is_live(entry)]
            heapify(self._heap)
        while self._heap and not self._is_live(self._heap[0]):
            heappop(self._heap)

    def _is_live(self, entry: _Entry) -> bool:
        """An id, and even a state, may come again, so the entry itself must be the living one."""
        return self._live.get(entry[1].request.id) is entry
