"""How a victim leaves memory: what it has computed is forgotten and computed again, or copied to the host and back.

    recompute   costs the model   its computed tokens run again
    swap        costs the link    its blocks cross to host memory now, and back when it runs again
    auto        whichever takes less time, for each victim

The victim is always from the back of the order; this piece only says what becomes of what it has computed. To swap is a
wish: where the host pool has no room, or nothing is computed yet, the victim is recomputed.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from evenflow.core.copy_time import CopyTime
from evenflow.core.kv_cache import Loss
from evenflow.core.step_time import StepTimeModel

_CURIOSITY = 0.05


class PreemptionMode(Enum):
    RECOMPUTE = "recompute"
    """Its blocks go back to the pool, and it computes everything again (but what the prefix cache still has)."""
    SWAP = "swap"
    """Its blocks go back to the pool, and what they held is in host memory until it runs again."""


class PreemptionChoice(Protocol):
    @property
    def name(self) -> str: ...

    def mode_of(self, loss: Loss, /) -> PreemptionMode:
        """How the victim that would lose this should leave."""
        ...


@dataclass(frozen=True, slots=True)
class Recompute:
    name: str = "recompute"

    def mode_of(self, loss: Loss, /) -> PreemptionMode:
        return PreemptionMode.RECOMPUTE


@dataclass(frozen=True, slots=True)
class Swap:
    name: str = "swap"

    def mode_of(self, loss: Loss, /) -> PreemptionMode:
        return PreemptionMode.SWAP


@dataclass(frozen=True, slots=True)
class Cheaper:
    """Compares what computing again would add to the steps with what both copies take, by what the engine has seen.
    As long as it does not know either, it swaps, and so learns what a copy takes; and once computing again has taken
    twenty times as long as a swap would, it tries one, in case that copies are no longer what they were."""

    step_time: StepTimeModel
    copy_time: CopyTime
    name: str = "auto"

    def mode_of(self, loss: Loss, /) -> PreemptionMode:
        if loss.num_tokens == 0:  # others hold all of it, and keep it cached
            return PreemptionMode.RECOMPUTE
        copying = self.copy_time.seconds(loss.num_blocks_out + loss.num_blocks_in)
        if copying is None or not self.step_time.is_fitted:
            return PreemptionMode.SWAP
        computing = self.step_time.prefill_seconds(loss.num_tokens, loss.attended_context_tokens)
        if copying < max(computing, _CURIOSITY * self.copy_time.spent_instead):
            return PreemptionMode.SWAP
        self.copy_time.avoided(computing)
        return PreemptionMode.RECOMPUTE
