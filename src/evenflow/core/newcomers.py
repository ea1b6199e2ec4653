"""The requests that wait and have never run: how many, how long, until when, and which of them goes first.

A queue without an end turns overload into waiting that nobody wants any more, so it is bounded (intake.py). What has
run already is not counted: its place was granted.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import chain
from math import floor

from evenflow.core.request import RequestId, RequestState

_Bucket = tuple[int, ...]


def _bucket(state: RequestState) -> _Bucket:
    """Keys of one second, or of one priority and second, together."""
    return tuple([floor(part) for part in state.key[:-1]])


class _ClassQueue:
    """One service class. `tokens_by_place` sums prompt tokens by flow and by bucket of the key."""

    __slots__ = ("num_tokens", "rank", "states", "tokens_by_place")

    def __init__(self, rank: float) -> None:
        self.rank = rank
        self.states: dict[RequestId, RequestState] = {}
        self.num_tokens = 0
        self.tokens_by_place: dict[str, dict[_Bucket, int]] = {}


class Newcomers:
    __slots__ = ("_by_deadline", "_classes", "_num_deadlines", "num_requests", "num_tokens")

    def __init__(self) -> None:
        self._classes: dict[str, _ClassQueue] = {}
        self._by_deadline: list[tuple[float, float, RequestState]] = []
        self._num_deadlines = 0
        self.num_requests = 0
        self.num_tokens = 0

    def __iter__(self) -> Iterator[RequestState]:
        for queue in self._classes.values():
            yield from queue.states.values()

    def __contains__(self, state: RequestState) -> bool:
        queue = self._classes.get(state.place.service_class)
        return queue is not None and queue.states.get(state.request.id) is state

    def of_class(self, service_class: str) -> tuple[int, int]:
        """Requests and prompt tokens."""
        queue = self._classes.get(service_class)
        return (0, 0) if queue is None else (len(queue.states), queue.num_tokens)

    def join(self, state: RequestState) -> None:
        queue = self._classes.setdefault(state.place.service_class, _ClassQueue(state.key[0]))
        queue.states[state.request.id] = state
        self._count(queue, state, 1)
        if state.request.ttft_deadline is not None:
            heappush(self._by_deadline, (state.request.ttft_deadline, state.key[-1], state))
            self._num_deadlines += 1

    def leave(self, state: RequestState) -> None:
        """It runs, or has ended."""
        queue = self._classes[state.place.service_class]
        del queue.states[state.request.id]
        if not queue.states:
            queue.states.clear()  # the table that a burst has left
        self._count(queue, state, -1)
        if state.request.ttft_deadline is not None:
            self._num_deadlines -= 1
            if len(self._by_deadline) > 2 * self._num_deadlines + 8:
                self._by_deadline = [entry for entry in self._by_deadline if entry[2] in self]
                heapify(self._by_deadline)

    def _count(self, queue: _ClassQueue, state: RequestState, sign: int) -> None:
        num_tokens = sign * state.num_prompt_tokens
        queue.num_tokens += num_tokens
        self.num_requests += sign
        self.num_tokens += num_tokens
        buckets = queue.tokens_by_place.setdefault(state.place.flow, {})
        bucket = _bucket(state)
        left = buckets[bucket] = buckets.get(bucket, 0) + num_tokens
        if not left:
            del buckets[bucket]
            if not buckets:
                del queue.tokens_by_place[state.place.flow]

    @property
    def first_deadline(self) -> float | None:
        """Nobody's deadline comes before this one."""
        return self._by_deadline[0][0] if self._by_deadline else None

    def expired(self, now: float) -> Iterator[RequestState]:
        """Those whose deadline has come. The caller ends each before it asks for the next."""
        while self._by_deadline and self._by_deadline[0][0] <= now:
            state = heappop(self._by_deadline)[2]
            if state in self:
                yield state

    def to_shed_for(self, rank: float) -> Iterator[RequestState]:
        """Those that rank behind, the worst class first, the latest of it first. Nothing is sorted until one is asked
        for: nearly always there is room."""
        worse = sorted((q for q in self._classes.values() if q.rank > rank), key=lambda q: -q.rank)
        yield from chain.from_iterable(reversed(queue.states.values()) for queue in worse)

    def tokens_ahead_of(self, state: RequestState) -> int:
        """Prompt tokens that surely come in before `state`: better classes', and its own flow's of smaller keys."""
        ahead, rank, bucket = 0, state.key[0], _bucket(state)
        for queue in self._classes.values():
            if queue.rank < rank:
                ahead += queue.num_tokens
        own = self._classes.get(state.place.service_class)
        if own is not None:
            ahead += sum(n for key, n in own.tokens_by_place.get(state.place.flow, {}).items() if key < bucket)
        return ahead
