"""Everybody who waits: a lane for each class and kind of prompt, and within it whatever queues fairness wants.

A step looks at as many heads as there are lanes with somebody in them: a handful, however many wait.
"""

from collections.abc import Container, Iterator
from itertools import chain

from evenflow.core.policy.fairness import Lane
from evenflow.core.policy.scheduling import SchedulingPolicy
from evenflow.core.request import RequestState


class WaitingLine:
    __slots__ = ("_lanes", "_policy", "num_waiting")

    def __init__(self, policy: SchedulingPolicy) -> None:
        self._policy = policy
        self._lanes: dict[str, Lane] = {}
        self.num_waiting = 0

    def __iter__(self) -> Iterator[RequestState]:
        return chain.from_iterable(self._lanes.values())

    def push(self, state: RequestState) -> None:
        lane = self._lanes.get(state.place.lane)
        if lane is None:
            lane = self._lanes[state.place.lane] = self._policy.fairness.lane(state.key[0])
        lane.push(state)
        self.num_waiting += 1

    def remove(self, state: RequestState) -> None:
        self._lanes[state.place.lane].remove(state)
        self.num_waiting -= 1

    def next_lane(self, shut: Container[str] = ()) -> Lane | None:
        """The lane whose head comes before the heads of all other lanes that are not shut; None if nobody is left."""
        open_lanes = [lane for name, lane in self._lanes.items() if len(lane) and name not in shut]
        if len(open_lanes) <= 1:
            return open_lanes[0] if open_lanes else None
        return min(open_lanes, key=lambda lane: lane.standing())

    def heads_of(self, service_class: str, shut: Container[str]) -> list[RequestState]:
        """The head of every lane of a class that is not shut."""
        heads = [lane.head() for name, lane in self._lanes.items() if len(lane) and name not in shut]
        return [head for head in heads if head.place.service_class == service_class]
