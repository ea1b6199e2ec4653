"""Scheduling choices as small pieces, composed into one `SchedulingPolicy`; never a flag inside the scheduler.

    order       who deserves more        one total order: served from the front, preempted from the back
    fairness    which flow is next       flows are separate waiting queues (one per tenant, say); order rules within one
    interleave  decode against prefill   splits a step's token budget
    reserve     admission                how many tokens' worth of blocks a newcomer must get
    budget      tokens per step          budget.py

Keys depend on the request and never on the time, so that a waiting queue is an ordinary heap: ageing is a *virtual
deadline*, `arrival + allowance`, not a key that moves.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple, NewType, Protocol

from evenflow.core.budget import BudgetController, FixedBudget
from evenflow.core.plan import WaitReason
from evenflow.core.request import OrderKey, Request, RequestState

FlowId = NewType("FlowId", str)


class Order(Protocol):
    @property
    def name(self) -> str: ...

    def key(self, request: Request, /) -> OrderKey:
        """Smaller is more deserving. Ties are broken by the order of acceptance."""
        ...

    def displaces(self, waiting: Request, running: Request, /) -> bool:
        """Whether `waiting` may take the seat and blocks of `running`. Implies a smaller key."""
        ...


@dataclass(frozen=True, slots=True)
class FirstCome:
    """Arrival order. Bound: a request waits only for requests that arrived before it. Displaces nobody."""

    name: str = "fcfs"

    def key(self, request: Request, /) -> OrderKey:
        return (request.arrival_time,)

    def displaces(self, waiting: Request, running: Request, /) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class ByPriority:
    """Smaller `priority` first, arrival order within one. A waiting request displaces running ones of a larger value,
    so that a full house of background work never holds up an urgent request (no priority inversion)."""

    name: str = "priority"

    def key(self, request: Request, /) -> OrderKey:
        return (request.priority, request.arrival_time)

    def displaces(self, waiting: Request, running: Request, /) -> bool:
        return waiting.priority < running.priority


class Fairness(Protocol):
    @property
    def name(self) -> str: ...

    def flow_of(self, request: Request, /) -> FlowId: ...

    def pick(self, flows: Collection[FlowId], /) -> FlowId:
        """Which of these flows (never empty, in order of first use) may admit next."""
        ...


@dataclass(frozen=True, slots=True)
class OneFlow:
    """No fairness between tenants: one queue for everybody."""

    name: str = "none"

    def flow_of(self, request: Request, /) -> FlowId:
        return FlowId("all")

    def pick(self, flows: Collection[FlowId], /) -> FlowId:
        return next(iter(flows))


class TokenSplit(NamedTuple):
    """Most tokens for decodes and for prefills in one step, and what to call the limit when a prefill hits it."""

    decode_tokens: int
    prefill_tokens: int
    prefill_limit: WaitReason


class Interleave(Protocol):
    @property
    def name(self) -> str: ...

    def split(self, budget: int, num_decodes: int, /) -> TokenSplit:
        """At least one token goes to whichever kind has work; the sum never exceeds the budget."""
        ...


@dataclass(frozen=True, slots=True)
class DecodeFirst:
    """Every decode gets its token, prefills share what is left (stall-free batching, Sarathi-Serve, OSDI 2024).

    Bound: no running decode is left out of a step while budget >= max_num_seqs.
    """

    name: str = "decode-first"

    def split(self, budget: int, num_decodes: int, /) -> TokenSplit:
        decode_tokens = min(budget, num_decodes)
        return TokenSplit(decode_tokens, budget - decode_tokens, WaitReason.BUDGET)


class Reserve(Protocol):
    @property
    def name(self) -> str: ...

    def tokens(self, state: RequestState, /) -> int:
        """Blocks for this many tokens are taken at admission; at least everything known of the request."""
        ...


@dataclass(frozen=True, slots=True)
class ReserveKnown:
    """Everything known (prompt, plus output so far after a preemption), never only the first chunk: admitting by chunk
    makes evicted long prompts cycle. The output grows on demand and may preempt."""

    name: str = "prompt"

    def tokens(self, state: RequestState, /) -> int:
        return state.num_tokens


@dataclass(frozen=True, slots=True)
class SchedulingPolicy:
    budget: BudgetController = field(default_factory=lambda: FixedBudget(512))
    order: Order = field(default_factory=FirstCome)
    fairness: Fairness = field(default_factory=OneFlow)
    interleave: Interleave = field(default_factory=DecodeFirst)
    reserve: Reserve = field(default_factory=ReserveKnown)
