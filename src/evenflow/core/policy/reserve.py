"""How much memory a request must find when it comes in.

Taking little fills the pool with more requests, of which some must later be preempted; taking much wastes what short
answers never use. Everything *known* is taken in any case, never only the first chunk: admitting by chunk makes evicted
long prompts cycle.
"""

from dataclasses import dataclass
from typing import Protocol

from evenflow.core.output_lengths import OutputLengths
from evenflow.core.policy.bound import Bound
from evenflow.core.request import RequestState

EVICTIONS = "memory_preemptions"


class Reserve(Protocol):
    @property
    def name(self) -> str: ...

    def tokens(self, state: RequestState, /) -> int:
        """Blocks for this many tokens are taken at admission; at least everything known of the request, and at most
        what it can ever need."""
        ...

    def bounds(self) -> tuple[Bound, ...]: ...


def longest(state: RequestState) -> int:
    """Tokens that the request can ever store: the last one is returned, never fed."""
    return len(state.request.prompt_token_ids) + state.request.sampling.max_tokens - 1


def _may_evict() -> tuple[Bound, ...]:
    return (Bound(EVICTIONS, None, "preemptions", "None: answers that outgrow memory preempt from the back."),)


@dataclass(frozen=True, slots=True)
class ReserveKnown:
    """The prompt, and after a preemption the output so far. The rest grows on demand and may preempt."""

    name: str = "prompt"

    def tokens(self, state: RequestState, /) -> int:
        return state.num_tokens

    def bounds(self) -> tuple[Bound, ...]:
        return _may_evict()


@dataclass(frozen=True, slots=True)
class ReserveExpected:
    """Also the output that such requests usually have: the learned `quantile`; max_tokens until enough is known."""

    quantile: float
    lengths: OutputLengths
    name: str = "expected"

    def tokens(self, state: RequestState, /) -> int:
        so_far = state.num_output_tokens
        expected = self.lengths.quantile(state.place.service_class, self.quantile, longer_than=so_far)
        if expected is None:
            return longest(state)
        return max(state.num_tokens, min(longest(state), state.num_prompt_tokens + expected - 1))

    def bounds(self) -> tuple[Bound, ...]:
        return _may_evict()


@dataclass(frozen=True, slots=True)
class ReserveMax:
    """The longest output that the request may have."""

    name: str = "max"

    def tokens(self, state: RequestState, /) -> int:
        return max(state.num_tokens, longest(state))

    def bounds(self) -> tuple[Bound, ...]:
        return (Bound(EVICTIONS, 0, "preemptions", "Nobody is ever preempted because memory ran out."),)
