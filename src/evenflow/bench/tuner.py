"""The tuner against the whole grid measured live: how good is its choice, and what did it cost?

    grid    every cell runs the load once in a round, in another order each round
    tuner   a search of its own: simulation, races, one refit; nothing is taken over from the grid
    regret  the chosen cell against the best one, both as the grid measured them, paired by request

The best of many measured cells is flattered by its luck, so the regret is, if anything, overstated. What the tuner took
is all its live runs and simulations and the calibration of its cost; what the grid took is its live runs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from evenflow.core.errors import EvenflowError
from evenflow.replay.bootstrap import Interval
from evenflow.tune.effects import relative_difference
from evenflow.tune.journal import Journal, Ran
from evenflow.tune.observations import Observations
from evenflow.tune.race import combined
from evenflow.tune.ranking import Candidate, Ranking, rank
from evenflow.tune.search import Found, Live, Search, Watch, run_once, search
from evenflow.tune.space import Cell

MOST_REGRET = 0.03
MOST_SHARE = 1 / 3

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Regret:
    """`lost` is the objective of the choice relative to the best cell's, worse is positive."""

    grid: Ranking
    found: Found
    chosen: Candidate
    best: Candidate
    lost: Interval
    grid_seconds: float
    tuner_seconds: float
    failed: tuple[tuple[Cell, str], ...]

    @property
    def share(self) -> float:
        return self.tuner_seconds / self.grid_seconds


def measure(
    what: Search, live: Live, folder: Path, *, rounds: int, calibration_seconds: float, watch: Watch, progress: Progress
) -> Regret:
    """Raises EvenflowError if the chosen cell, or none at all, could be measured. Goes on with what `folder` has."""
    for name in ("grid", "tuner"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    facts = {"search": str((what.space, what.goal, what.load, what.cost)), "rounds": str(rounds)}
    journal = Journal(folder / "grid" / "journal.jsonl", facts)
    runs, failed = _measure_grid(what, live, folder / "grid", journal, rounds, progress)
    found = search(what, Journal(folder / "tuner" / "journal.jsonl", facts), folder / "tuner", live, watch)
    ranking = rank(list(runs.items()), what.goal)
    chosen = ranking.of(found.choice.cell)
    if chosen is None:
        why = failed.get(found.choice.cell, "it did not run in every round")
        raise EvenflowError(f"the chosen cell could not be measured: {why}")
    best = ranking.nearest
    sign = -1.0 if what.goal.objective.more_is_better else 1.0
    change = relative_difference(best, chosen, what.goal) if chosen is not best else Interval(0.0, 0.0, 0.0)
    return Regret(
        ranking,
        found,
        chosen,
        best,
        _signed(change, sign),
        sum(entry.seconds for entry in journal.entries if isinstance(entry, Ran)),
        found.live_seconds + found.simulated_seconds + calibration_seconds,
        tuple(failed.items()),
    )


def _signed(change: Interval, sign: float) -> Interval:
    low, high = change.low, change.high
    if sign > 0.0 or low is None or high is None:
        return Interval(sign * change.estimate, low, high)
    return Interval(-change.estimate, -high, -low)


def _measure_grid(
    what: Search, live: Live, folder: Path, journal: Journal, rounds: int, progress: Progress
) -> tuple[dict[Cell, Observations], dict[Cell, str]]:
    (folder / "live").mkdir(exist_ok=True)
    runs: dict[Cell, list[Observations]] = {cell: [] for cell in what.cells}
    failed: dict[Cell, str] = {}
    rng = Random(what.load.seed)
    total = rounds * len(what.cells)
    done = 0
    for number in range(rounds):
        order = list(what.cells)
        rng.shuffle(order)
        for cell in order:
            done += 1
            progress(f"grid: run {done} of {total}: {what.space.label(cell)}")
            outcome = run_once(cell, 0, number, what, journal, folder, live)
            if isinstance(outcome, str):
                failed[cell] = outcome
            else:
                runs[cell].append(outcome)
    whole = {cell: combined(each) for cell, each in runs.items() if len(each) == rounds}
    if not whole:
        raise EvenflowError(
            f"no cell of the grid ran {rounds} times; the first failed with: {next(iter(failed.values()))}"
        )
    return whole, failed
