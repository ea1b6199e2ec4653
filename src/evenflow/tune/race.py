"""When live runs have said enough: a sequential rule over interleaved, paired rounds, with a stated error.

    round 1   A B C      each runs the same window of the trace once, in another order each round,
    round 2   C A B      so that what happens to the machine over the rounds meets all alike
    round 3   B . A      C was told worse, and is out

After every round all rounds are judged together as one long run: stretches of time are resampled within the rounds,
the same for all. Looking K times at an error of e / K each is at most e in all (Bonferroni): whenever the race stops,
the chance that the best configuration was thrown out is at most e, as far as chance in the load and in the machine
*within* runs goes. What changes between runs no interval over requests can know: nobody is out before two rounds, nor
without having been worse in each of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from evenflow.replay.bootstrap import Sample
from evenflow.tune.effects import objective_value, relative_difference, value
from evenflow.tune.objective import Goal
from evenflow.tune.observations import Observations
from evenflow.tune.ranking import Candidate, Kept, Ranking, rank
from evenflow.tune.space import Cell

ERROR = 0.05
# Configurations that differ by less are the same for whoever serves with them.
PRACTICALLY_EQUAL = 0.03
_MIN_ROUNDS = 2


class Stop(Enum):
    ONE_LEFT = "all others were told worse"
    EQUAL = f"those that are left differ by less than {PRACTICALLY_EQUAL:.0%}"
    OUT_OF_ROUNDS = "the rounds that were allowed are over"


@dataclass(frozen=True, slots=True)
class Standing:
    """After some rounds. `running` are to run again unless `stop` says why not; `ranking` is of all with any run."""

    num_rounds: int
    ranking: Ranking
    running: tuple[Cell, ...]
    out: tuple[tuple[Cell, str], ...]
    stop: Stop | None


Round = Mapping[Cell, Observations]


def stand(rounds: Sequence[Round], goal: Goal, *, max_rounds: int, error: float = ERROR) -> Standing:
    """`rounds` are complete. A configuration that is missing from a later round was out by then, or failed."""
    assert rounds and rounds[0], "somebody ran"
    confidence = 1.0 - error / max_rounds
    entered = list(rounds[0])
    running = [cell for cell in entered if all(cell in each for each in rounds)]
    out = {cell: "was out, or failed, before the last round" for cell in entered if cell not in running}
    ranking = rank([(cell, combined([each[cell] for each in rounds])) for cell in running], goal, confidence=confidence)
    if len(rounds) >= _MIN_ROUNDS:
        out |= dict(_worse(rounds, ranking, running, goal))
    left = tuple(cell for cell in running if cell not in out)
    return Standing(len(rounds), ranking, left, tuple(out.items()), _stop(left, ranking, len(rounds), max_rounds))


def _worse(rounds: Sequence[Round], ranking: Ranking, running: Sequence[Cell], goal: Goal) -> list[tuple[Cell, str]]:
    best = ranking.best
    if best is None:
        return []
    members = {each.cell for each in ranking.contenders}.union(*ranking.twins)
    sign = 1.0 if goal.objective.more_is_better else -1.0
    found = []
    for cell in running:
        mine = ranking.of(cell)
        assert mine is not None
        if cell == best.cell or mine.low is None:  # too few requests for any interval: nothing is told
            continue
        missed = [against.limit for against in mine.limits if against.kept is Kept.NO]
        if missed and all(_misses(each[cell], goal) for each in rounds):
            found.append((cell, f"misses {', '.join(map(str, missed))}"))
        elif cell not in members and all(
            sign * objective_value(each[cell], goal) < sign * objective_value(each[best.cell], goal) for each in rounds
        ):
            found.append((cell, f"is worse in {goal.objective.title}, in every round"))
    return found


def _misses(run: Observations, goal: Goal) -> bool:
    return any(value(run, limit.statistic) > limit.seconds for limit in goal.limits)


def _candidate(ranking: Ranking, cell: Cell) -> Candidate:
    found = ranking.of(cell)
    assert found is not None
    return found


def _stop(left: Sequence[Cell], ranking: Ranking, num_rounds: int, max_rounds: int) -> Stop | None:
    if len(left) <= 1:
        return Stop.ONE_LEFT
    if num_rounds >= _MIN_ROUNDS and ranking.best is not None and _practically_equal(left, ranking):
        return Stop.EQUAL
    return Stop.OUT_OF_ROUNDS if num_rounds >= max_rounds else None


def _practically_equal(left: Sequence[Cell], ranking: Ranking) -> bool:
    """By the intervals of their objectives' ratios to the best, and with every limit told kept."""
    best = ranking.best
    assert best is not None
    for cell in left:
        mine = _candidate(ranking, cell)
        if any(against.kept is not Kept.YES for against in mine.limits):
            return False
        if cell == best.cell:
            continue
        lost = relative_difference(best, mine, ranking.goal, level=ranking.confidence)
        if lost.low is None or lost.high is None or max(abs(lost.low), abs(lost.high)) > PRACTICALLY_EQUAL:
            return False
    return True


def combined(runs: Sequence[Observations]) -> Observations:
    """Rounds of one configuration as one run: their cells of time stand behind one another."""
    first = runs[0]
    samples = {}
    for key in first.samples:
        parts = [run.samples[key] for run in runs]
        weights = None
        if any(part.weights is not None for part in parts):
            weights = np.concatenate(
                [part.weights if part.weights is not None else np.ones(len(part.values)) for part in parts]
            )
        offsets = np.cumsum([0, *(run.num_time_cells for run in runs[:-1])])
        samples[key] = Sample(
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.blocks + offset for part, offset in zip(parts, offsets, strict=True)]),
            weights,
        )
    return Observations(
        sum(run.seconds for run in runs),
        sum(run.num_time_cells for run in runs),
        sum(run.num_planned for run in runs),
        sum(run.num_failed for run in runs),
        samples,
    )
