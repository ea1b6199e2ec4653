"""Decode against prefill: how a step's token budget is split between the two.

A running decode that gets no token in a step shows as a gap in its stream; a prefill that gets none, as a later first
token. Each piece says how many steps in a row may leave a decode out. Who has been left out longest is served first, so
with `d` tokens for `n` decodes nobody is left out of more than ceil(n / d) - 1 steps in a row.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple, Protocol

from evenflow.core.plan import WaitReason
from evenflow.core.policy.bound import Bound, Limits
from evenflow.core.request import RequestId, RequestState

DECODE_GAP = "decode_gap_steps"


class Demand(NamedTuple):
    """What a step could feed: `backlog` is the prefill tokens that are wanted, `running` everybody in order.

    Who has `entered` in this step prefills, even if it is the last token of its prompt that is left. `in_progress` is
    what `running` wants of the backlog, where that is known.
    """

    budget: int
    num_decodes: int
    backlog: int
    running: Sequence[RequestState] = ()
    entered: Container[RequestId] = ()
    in_progress: int | None = None


class TokenSplit(NamedTuple):
    """Most tokens for decodes and for prefills in one step, and what to call either limit when it is hit."""

    decode_tokens: int
    prefill_tokens: int
    prefill_limit: WaitReason = WaitReason.BUDGET
    decode_limit: WaitReason = WaitReason.BUDGET


Budgets = Callable[[int], int]
"""The smallest budget of a step with so many decodes."""


class Interleave(Protocol):
    @property
    def name(self) -> str: ...

    def split(self, demand: Demand, /) -> TokenSplit:
        """At least one token goes to whichever kind has work, unless a step has room for one token only and both have;
        where the budget exceeds the decodes, prefills that want some get one at least (admission.py counts on it);
        the sum never exceeds the budget. Called several times in a step, and changes nothing."""
        ...

    def stepped(self, longest_gap: int, /) -> None:
        """The step was handed out; some decode has now been left out of so many steps in a row, and none of more."""
        ...

    def guaranteed_prefill(self, budget: int, num_decodes: int, /) -> int:
        """Tokens that prefills get in any step of this budget with so many decodes, if they want them."""
        ...

    def bounds(self, limits: Limits, least_budget: Budgets, /) -> tuple[Bound, ...]: ...


def _gap(value: float | None, sentence: str) -> Bound:
    return Bound(DECODE_GAP, value, "steps", sentence)


def _rounds(limits: Limits, served: Budgets) -> int:
    """Steps in a row that a decode may be left out of, if of `n` decodes so many are served in each step."""
    return max(ceil(n / max(1, min(n, served(n)))) - 1 for n in range(1, limits.max_num_seqs + 1))


@dataclass(frozen=True, slots=True)
class DecodeFirst:
    """Every decode gets its token, prefills share what is left (stall-free batching, Sarathi-Serve, OSDI 2024)."""

    name: str = "decode-first"

    def split(self, demand: Demand, /) -> TokenSplit:
        decode_tokens = min(demand.budget, demand.num_decodes)
        return TokenSplit(decode_tokens, demand.budget - decode_tokens)

    def stepped(self, longest_gap: int, /) -> None:
        pass

    def guaranteed_prefill(self, budget: int, num_decodes: int, /) -> int:
        return max(0, budget - num_decodes)

    def bounds(self, limits: Limits, least_budget: Budgets, /) -> tuple[Bound, ...]:
        gap = _rounds(limits, least_budget)
        sentence = f"A running decode is left out of at most {gap} steps in a row, whatever prompts arrive."
        return (_gap(gap, sentence),)


@dataclass(slots=True)
class PrefillFirst:
    """Prefills take what they can, decodes the rest; but after `max_skipped_steps` steps in a row that left a decode
    out, a step serves the decodes first. The bound is what keeps a stream of prompts from stopping every answer."""

    max_skipped_steps: int
    name: str = "prefill-first"
    _longest_gap: int = field(default=0, init=False)

    def split(self, demand: Demand, /) -> TokenSplit:
        budget = demand.budget
        if self._longest_gap >= self.max_skipped_steps:
            decode_tokens = min(budget, demand.num_decodes)
            return TokenSplit(decode_tokens, budget - decode_tokens, WaitReason.BUDGET, WaitReason.BUDGET)
        prefill_tokens = min(budget, demand.backlog)
        return TokenSplit(budget - prefill_tokens, prefill_tokens, WaitReason.BUDGET, WaitReason.DECODE_SHARE)

    def stepped(self, longest_gap: int, /) -> None:
        self._longest_gap = longest_gap

    def guaranteed_prefill(self, budget: int, num_decodes: int, /) -> int:
        return max(0, budget - num_decodes)

    def bounds(self, limits: Limits, least_budget: Budgets, /) -> tuple[Bound, ...]:
        # From then on every step serves the longest left out, until nobody has reached the limit.
        gap = self.max_skipped_steps + _rounds(limits, least_budget)
        sentence = f"A running decode is left out of at most {gap} steps in a row; then decodes come first."
        return (_gap(gap, sentence),)


@dataclass(frozen=True, slots=True)
class InOrder:
    """Tokens go to running requests front to back, decode or prefill, and to newcomers last."""

    name: str = "in-order"

    def split(self, demand: Demand, /) -> TokenSplit:
        budget, num_decodes, backlog, running, entered, in_progress = demand
        wanted = backlog if in_progress is None else in_progress
        if num_decodes + wanted <= budget or not num_decodes:  # nobody who runs is in the way of a decode
            decode_tokens = min(budget, num_decodes)
            return TokenSplit(decode_tokens, budget - decode_tokens)
        left, decode_tokens = budget, 0
        for state in running:
            remaining = len(state.token_ids) - state.num_computed_tokens
            decode_tokens += remaining == 1 and state.request.id not in entered
            left -= remaining
            if left <= 0:
                break
        return TokenSplit(decode_tokens, budget - decode_tokens)

    def stepped(self, longest_gap: int, /) -> None:
        pass

    def guaranteed_prefill(self, budget: int, num_decodes: int, /) -> int:
        return max(0, budget - num_decodes)

    def bounds(self, limits: Limits, least_budget: Budgets, /) -> tuple[Bound, ...]:
        sentence = "None: a decode waits while requests before it prefill, and these may be preempted and come again."
        return (_gap(None, sentence),)


@dataclass(frozen=True, slots=True)
class Shared:
    """Both kinds have a share of each step that the other cannot take: prefills between `min_share` and `max_share`
    while others decode. So decodes that fill a budget never keep an urgent prompt out, nor do prompts stop a stream."""

    min_share: float
    max_share: float
    name: str = "shared"

    def _least(self, budget: int) -> int:
        """Kept for prefills; one token at least, unless that is all there is."""
        return min(max(ceil(self.min_share * budget), 1), budget - 1) if self.min_share else 0

    def _most(self, budget: int) -> int:
        return max(self._least(budget), min(int(self.max_share * budget), budget - 1), 1)

    def split(self, demand: Demand, /) -> TokenSplit:
        budget, num_decodes, backlog = demand[:3]
        if not num_decodes:
            return TokenSplit(0, budget)
        least, most = min(self._least(budget), backlog), self._most(budget)
        decode_tokens = min(num_decodes, budget - least)
        prefill_tokens = min(most, budget - decode_tokens)
        limit = WaitReason.PREFILL_SHARE if prefill_tokens == most < budget - decode_tokens else WaitReason.BUDGET
        return TokenSplit(decode_tokens, prefill_tokens, limit, WaitReason.BUDGET)

    def stepped(self, longest_gap: int, /) -> None:
        pass

    def guaranteed_prefill(self, budget: int, num_decodes: int, /) -> int:
        return max(self._least(budget), min(self._most(budget), budget - num_decodes))

    def bounds(self, limits: Limits, least_budget: Budgets, /) -> tuple[Bound, ...]:
        gap = _rounds(limits, lambda n: least_budget(n) - self._least(least_budget(n)))
        sentence = f"A running decode is left out of at most {gap} steps in a row, whatever prompts arrive."
        most = self._most(limits.max_num_batched_tokens)
        return (
            _gap(gap, sentence),
            Bound("prefill_share", most, "tokens", f"A step with decodes feeds at most {most} prefill tokens."),
        )
