"""How many tokens a step may feed."""

from dataclasses import dataclass
from typing import Protocol

from evenflow.core.errors import ConfigError


class BudgetController(Protocol):
    @property
    def name(self) -> str: ...

    def tokens(self) -> int:
        """This step's token budget, at least 1."""
        ...


@dataclass(frozen=True, slots=True)
class FixedBudget:
    """The same budget in every step: bounds the time of a step, and so the stall a prefill can cause."""

    max_num_batched_tokens: int
    name: str = "fixed"

    def __post_init__(self) -> None:
        if self.max_num_batched_tokens < 1:
            raise ConfigError(f"max_num_batched_tokens must be at least 1, not {self.max_num_batched_tokens}")

    def tokens(self) -> int:
        return self.max_num_batched_tokens
