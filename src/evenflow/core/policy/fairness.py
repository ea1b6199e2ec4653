"""Who waits with whom, and which flow is next: all in one queue, or tenants in turn (vtc.py)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from evenflow.core.plan import Chunk
from evenflow.core.policy.bound import Bound, Limits
from evenflow.core.queue import FlowQueue
from evenflow.core.request import OrderKey, Request, RequestId, RequestState

SERVICE_GAP = "service_gap"


class Lane(Protocol):
    """The waiting requests of one class and kind."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[RequestState]: ...

    @property
    def num_flows(self) -> int:
        """Flows with somebody waiting."""
        ...

    def push(self, state: RequestState, /) -> None: ...

    def remove(self, state: RequestState, /) -> None: ...

    def head(self) -> RequestState:
        """Who comes in next; somebody must be waiting."""
        ...

    def standing(self) -> OrderKey:
        """The head's place against the heads of other lanes; smaller comes first."""
        ...

    def followers(self, count: int, /) -> list[RequestState]:
        """Up to `count` requests of the head's own flow behind it, most deserving first."""
        ...


class Fairness(Protocol):
    @property
    def name(self) -> str: ...

    def flow_of(self, lane: str, request: Request, /) -> str: ...

    def lane(self, rank: float, /) -> Lane:
        """A new, empty one, for requests of a class of this rank."""
        ...

    def admitted(self, state: RequestState, num_tokens: int, /) -> None:
        """It got its first seat, and this many tokens of its prompt will be computed."""
        ...

    def served(self, chunks: Iterable[Chunk], /) -> None:
        """Each of these that samples gave its request an output token; some requests may have ended meanwhile."""
        ...

    def ended(self, request_id: RequestId, /) -> None: ...

    def take_over(self, previous: "Fairness", running: Iterable[RequestState], /) -> None:
        """Remember what the piece that this one replaces knew; called when everybody stands where they stand now."""
        ...

    def bounds(self, limits: Limits, /) -> tuple[Bound, ...]: ...


class PlainLane(FlowQueue):
    __slots__ = ()

    @property
    def num_flows(self) -> int:
        return 1

    def standing(self) -> OrderKey:
        return self.head().key


@dataclass(frozen=True, slots=True)
class OneFlow:
    """No fairness between tenants: one queue for everybody."""

    name: str = "none"

    def flow_of(self, lane: str, request: Request, /) -> str:
        return lane

    def lane(self, rank: float, /) -> Lane:
        return PlainLane()

    def admitted(self, state: RequestState, num_tokens: int, /) -> None:
        pass

    def served(self, chunks: Iterable[Chunk], /) -> None:
        pass

    def ended(self, request_id: RequestId, /) -> None:
        pass

    def take_over(self, previous: Fairness, running: Iterable[RequestState], /) -> None:
        pass

    def bounds(self, limits: Limits, /) -> tuple[Bound, ...]:
        return (Bound(SERVICE_GAP, None, "tokens", "None: a tenant who sends more gets more."),)
