"""What a change would do, as numbers: the answer of whoever can run the load again, and what that answer is worth.

A rule's proposal is a guess; a simulator of the same requests under the changed settings turns it into figures before
and after. They can be no better than the simulation is: so it first runs the load as it was, and `Agreement` is how
near that came to the log. An effect smaller than this error is marked, and so is one that rests on steps beyond
what the simulator's cost was fitted to.
"""

from dataclasses import dataclass

EVERYBODY = "all"


@dataclass(frozen=True, slots=True)
class EffectRow:
    """One figure of one group of requests (such as "1-128 in, 1-32 out"; "all" for everybody), before and after.

    `unit` is "s" or "tokens/s". `low` and `high` bound after - before at 95 %, None where the requests are too few for
    an interval. `error` is how far the simulation as it was is off in this figure, as a share; None if unknown.
    `is_guess`: too many of its steps are beyond what the cost was fitted to.
    """

    metric: str
    group: str
    num_requests: int
    unit: str
    before: float
    after: float
    low: float | None = None
    high: float | None = None
    more_is_better: bool = False
    error: float | None = None
    is_guess: bool = False

    @property
    def change(self) -> float | None:
        """As a share of what was before."""
        return self.after / self.before - 1.0 if self.before else None

    @property
    def verdict(self) -> str:
        if self.low is None or self.high is None:
            return "too few requests to tell"
        if self.low <= 0.0 <= self.high:
            return "no difference that the data carry"
        told = "better" if (self.after > self.before) == self.more_is_better else "worse"
        if self.error is not None and self.change is not None and abs(self.change) < abs(self.error):
            told = f"{told}, by less than the simulation is off"
        return f"{told} (a guess)" if self.is_guess else told


@dataclass(frozen=True, slots=True)
class Effect:
    """`notes` say what to keep in mind; `unknown` says why there are no rows.

    `share_outside` is that of the steps whose times are guesses: beyond what the cost was fitted to.
    """

    rows: tuple[EffectRow, ...] = ()
    share_outside: float = 0.0
    notes: tuple[str, ...] = ()
    unknown: str | None = None


@dataclass(frozen=True, slots=True)
class Agreement:
    """A figure of the run as the log has it, and as its simulation has it. `unit` is "s", "tokens/s" or ""."""

    metric: str
    unit: str
    logged: float
    simulated: float

    @property
    def error(self) -> float | None:
        """As a share of what was logged."""
        return self.simulated / self.logged - 1.0 if self.logged else None


@dataclass(frozen=True, slots=True)
class Basis:
    """What effects rest on. `sentences` are for people; alone, they say why there are none, and how to get some."""

    sentences: tuple[str, ...]
    agreement: tuple[Agreement, ...] = ()
