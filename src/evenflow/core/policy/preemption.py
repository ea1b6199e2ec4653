"""How a victim leaves memory.

The victim is always from the back of the order; this piece only says what becomes of what it has computed.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from evenflow.core.request import RequestState


class Exit(Enum):
    RECOMPUTE = "recompute"
    """Its blocks go back to the pool, and it computes everything again (but what the prefix cache still has)."""


class PreemptionChoice(Protocol):
    @property
    def name(self) -> str: ...

    def exit_of(self, victim: RequestState, /) -> Exit: ...


@dataclass(frozen=True, slots=True)
class Recompute:
    name: str = "recompute"

    def exit_of(self, victim: RequestState, /) -> Exit:
        return Exit.RECOMPUTE
