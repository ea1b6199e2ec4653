"""Long prompts may have limits of their own, so that one of them does not hold up fifty short ones.

They wait in a lane of their own, of which at most `max_in_progress` are prefilled at once, and together they get at
most a share of each step's prefill tokens while short ones want the rest. And the first of them has a few tokens of
every step to itself, so that no stream of short prompts keeps a long one from ever finishing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple, Protocol

from evenflow.core.policy.bound import Bound, Limits
from evenflow.core.request import Request, RequestState


class PrefillShares(NamedTuple):
    """Of a step's prefill tokens: most for long prompts together, and most for short ones together."""

    long_tokens: int
    short_tokens: int


class LongPrompts(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def max_in_progress(self) -> int: ...

    def is_long(self, request: Request, /) -> bool: ...

    def shares(self, prefill_tokens: int, long: Sequence[RequestState], short_backlog: int, /) -> PrefillShares:
        """`long` are the long prompts in progress, most deserving first; `short_backlog` is what the others want."""
        ...

    def bounds(self, limits: Limits, guaranteed_prefill: int, /) -> tuple[Bound, ...]: ...


@dataclass(frozen=True, slots=True)
class Unlimited:
    """A long prompt is a prompt like any other."""

    max_in_progress: int = 1  # of none
    name: str = "unlimited"

    def is_long(self, request: Request, /) -> bool:
        return False

    def shares(self, prefill_tokens: int, long: Sequence[RequestState], short_backlog: int, /) -> PrefillShares:
        return PrefillShares(0, prefill_tokens)

    def bounds(self, limits: Limits, guaranteed_prefill: int, /) -> tuple[Bound, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Limited:
    threshold: int
    max_in_progress: int
    share: float
    min_tokens: int
    name: str = "limited"

    def is_long(self, request: Request, /) -> bool:
        return len(request.prompt_token_ids) > self.threshold

    def shares(self, prefill_tokens: int, long: Sequence[RequestState], short_backlog: int, /) -> PrefillShares:
        kept = min(self.min_tokens, prefill_tokens, long[0].num_remaining_tokens) if long else 0
        most = max(kept, int(self.share * prefill_tokens), prefill_tokens - short_backlog)
        return PrefillShares(most, prefill_tokens - kept)

    def bounds(self, limits: Limits, guaranteed_prefill: int, /) -> tuple[Bound, ...]:
        progress = min(self.min_tokens, guaranteed_prefill)
        most = max(self.min_tokens, int(self.share * limits.max_num_batched_tokens))
        return (
            Bound(
                "long_prefills",
                self.max_in_progress,
                "requests",
                f"At most {self.max_in_progress} prompts of more than {self.threshold} tokens are in progress at once.",
            ),
            Bound(
                "long_prompt_share",
                most,
                "tokens",
                f"Long prompts get at most {most} tokens of a step while short ones could use the others.",
            ),
            Bound(
                "long_prefill_steps",
                ceil(limits.max_model_len / progress) if progress else None,
                "steps",
                f"The first long prompt in progress gets at least {progress} tokens of every step, so it ends."
                if progress
                else "None: decodes may fill every step, and no prompt is then computed.",
            ),
        )
