"""What an experiment on scheduling policies is: a question, a load, and figures that are ratios within one run.

Each file of this package is one experiment; table.py lists them. An experiment loads the model once, lets several
engines on it play the same load in turns (play.py), so that a slow minute of the machine meets everybody, and compares
pairs of rounds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from evenflow.engine.config import EngineConfig

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured ratio and what was asked of it."""

    name: str
    value: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def asked(self) -> str:
        limits = (("at least", self.at_least), ("at most", self.at_most))
        return " and ".join(f"{word} {limit:g}" for word, limit in limits if limit is not None)

    @property
    def met(self) -> bool:
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """`rows` are what the figures were made of, one for each engine: (name, value) pairs of the same names."""

    setting: str
    rows: tuple[tuple[tuple[str, str], ...], ...]
    figures: tuple[Figure, ...]


class Measure(Protocol):
    def __call__(self, config: EngineConfig, /, *, rounds: int, progress: Progress) -> Finding:
        """`config` says which model, in which formats and with how many threads; the experiment sets the rest."""
        ...


class Experiment(NamedTuple):
    name: str
    question: str
    measure: Measure
