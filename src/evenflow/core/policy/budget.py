"""How many tokens a step may feed.

A fixed budget bounds the work of a step and leaves its time to chance. `ItlTarget` turns the question round: given what
the steps so far have cost (step_time.py), how many prefill tokens fit beside these decodes into the time that a stream
may wait for its next token? Nobody waits in a step without decodes, so such a step is as large as the engine allows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from evenflow.core.policy.bound import Bound, Limits
from evenflow.core.request import RequestState
from evenflow.core.step_time import StepTimeModel


class BudgetController(Protocol):
    @property
    def name(self) -> str: ...

    def tokens(self, decodes: Sequence[RequestState], prefill_start: int, /) -> int:
        """This step's token budget, at least 1; `prefill_start` is the position of the first prefill token."""
        ...

    def least(self, num_decodes: int, /) -> int:
        """The smallest budget of a step with so many decodes."""
        ...

    def bounds(self, limits: Limits, /) -> tuple[Bound, ...]: ...


def _step_tokens(value: int) -> Bound:
    return Bound("step_tokens", value, "tokens", f"A step feeds at most {value} tokens.")


@dataclass(frozen=True, slots=True)
class FixedBudget:
    """The same budget in every step."""

    max_num_batched_tokens: int
    name: str = "fixed"

    def tokens(self, decodes: Sequence[RequestState], prefill_start: int, /) -> int:
        return self.max_num_batched_tokens

    def least(self, num_decodes: int, /) -> int:
        return self.max_num_batched_tokens

    def bounds(self, limits: Limits, /) -> tuple[Bound, ...]:
        return (_step_tokens(self.max_num_batched_tokens),)


@dataclass(frozen=True, slots=True)
class ItlTarget:
    """As many tokens as the step-time model gives `itl_target` seconds for, never more than `max_num_batched_tokens`.

    On a machine whose decodes alone come near the target, newcomers would starve: prefills get the time of
    `min_share` of the target whatever the decodes take, and `min_prefill_tokens` whatever those take. The former is
    what keeps a loaded machine going, and as it is counted in time it costs the streams the same at every depth.
    """

    itl_target: float
    min_share: float
    min_prefill_tokens: int
    max_num_batched_tokens: int
    step_time: StepTimeModel
    name: str = "itl-target"

    def tokens(self, decodes: Sequence[RequestState], prefill_start: int, /) -> int:
        if not decodes:
            return self.max_num_batched_tokens
        context = sum([state.num_computed_tokens for state in decodes]) + len(decodes)
        fitting = self.step_time.prefill_tokens_within(
            self.itl_target, len(decodes), context, prefill_start, least_seconds=self.min_share * self.itl_target
        )
        return min(self.max_num_batched_tokens, len(decodes) + max(self.min_prefill_tokens, fitting))

    def least(self, num_decodes: int, /) -> int:
        if not num_decodes:
            return self.max_num_batched_tokens
        return min(self.max_num_batched_tokens, num_decodes + self.min_prefill_tokens)

    def bounds(self, limits: Limits, /) -> tuple[Bound, ...]:
        target = Bound(
            "itl_target",
            self.itl_target,
            "s",
            f"By the fitted model, a step with decodes takes at most {self.itl_target * 1e3:g} ms, or what its decodes "
            f"take and {self.min_share * self.itl_target * 1e3:g} ms, or what they and {self.min_prefill_tokens} "
            "prefill tokens take. A prediction, not a promise.",
        )
        return (_step_tokens(self.max_num_batched_tokens), target)
