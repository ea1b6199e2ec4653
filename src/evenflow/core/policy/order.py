"""Who deserves more: one total order within a class, served from the front and preempted from the back.

Keys depend on the request and never on the time, so that a waiting queue is an ordinary heap. Ageing is a *virtual
deadline*, `arrival + allowance`, with an allowance of at most `max_overtake`:

    arrival a ----------------[ key of a ]
                  arrival b ------------[ key of b ]        b may pass a only if it arrived within a's allowance

A key at or before `arrival + max_overtake` is passed by nobody who arrives later than that: the starvation bound.
"""

from dataclasses import dataclass
from typing import Protocol

from evenflow.core.policy.bound import Bound
from evenflow.core.request import OrderKey, Request

OVERTAKE = "overtake_seconds"


def _overtake(value: float | None, sentence: str) -> Bound:
    return Bound(OVERTAKE, value, "s", sentence)


class Order(Protocol):
    @property
    def name(self) -> str: ...

    def key(self, request: Request, /) -> OrderKey:
        """Smaller is more deserving. Ties are broken by the order of acceptance."""
        ...

    def displaces(self, waiting: Request, running: Request, /) -> bool:
        """Whether `waiting` may take the seat and blocks of `running`. Implies a smaller key."""
        ...

    def bounds(self) -> tuple[Bound, ...]: ...


@dataclass(frozen=True, slots=True)
class FirstCome:
    """Arrival order. Displaces nobody."""

    name: str = "fcfs"

    def key(self, request: Request, /) -> OrderKey:
        return (request.arrival_time,)

    def displaces(self, waiting: Request, running: Request, /) -> bool:
        return False

    def bounds(self) -> tuple[Bound, ...]:
        return (_overtake(0.0, "Nobody who arrives later comes in first."),)


@dataclass(frozen=True, slots=True)
class ByPriority:
    """Smaller `priority` first, arrival order within one. A waiting request displaces running ones of a larger value,
    so that a full house of background work never holds up an urgent request (no priority inversion)."""

    name: str = "priority"

    def key(self, request: Request, /) -> OrderKey:
        return (request.priority, request.arrival_time)

    def displaces(self, waiting: Request, running: Request, /) -> bool:
        return waiting.priority < running.priority

    def bounds(self) -> tuple[Bound, ...]:
        return (_overtake(None, "A request may wait for ever while more urgent ones keep coming."),)


@dataclass(frozen=True, slots=True)
class ShortestPrompt:
    """Short prompts first, with ageing: each prompt token lets later arrivals pass for `overtake_per_token` seconds."""

    max_overtake: float
    overtake_per_token: float
    name: str = "shortest-prompt"

    def key(self, request: Request, /) -> OrderKey:
        allowance = len(request.prompt_token_ids) * self.overtake_per_token
        return (request.arrival_time + min(self.max_overtake, allowance),)

    def displaces(self, waiting: Request, running: Request, /) -> bool:
        return False

    def bounds(self) -> tuple[Bound, ...]:
        sentence = f"Nobody who arrives more than {self.max_overtake:g} s later comes in first, however short."
        return (_overtake(self.max_overtake, sentence),)


@dataclass(frozen=True, slots=True)
class EarliestDeadline:
    """The earliest TTFT deadline first; one that is further off than `max_overtake`, or missing, counts as that far."""

    max_overtake: float
    name: str = "deadline"

    def key(self, request: Request, /) -> OrderKey:
        latest = request.arrival_time + self.max_overtake
        return (latest if request.ttft_deadline is None else min(latest, request.ttft_deadline),)

    def displaces(self, waiting: Request, running: Request, /) -> bool:
        return False

    def bounds(self) -> tuple[Bound, ...]:
        sentence = f"Nobody who arrives more than {self.max_overtake:g} s later comes in first, however urgent."
        return (_overtake(self.max_overtake, sentence),)
