"""When live runs have said enough: a sequential rule over interleaved, paired rounds, with a stated error.

    round 1   A B C      each runs the same window of the trace once, in another order each round,
    round 2   C A B      so that what happens to the machine over the rounds meets all alike
    round 3   B . A      C was told worse, and is out

Two kinds of chance are asked after every round, and both must deny it before anything is told:

    the load       all rounds together as one long run: stretches of time are resampled within the rounds, the same
                   for all. Other requests could have come.
    the machine    each round is one observation (blocked.py): other minutes could have come. However many requests a
                   run has, they share its minutes.

Looking K times at an error of e / K each is at most e in all (Bonferroni): whenever the race stops, the chance that the
best configuration was thrown out is at most e. On a machine that is never the same two or three rounds tell little
apart, and the race then goes on until its rounds are over.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import expm1, inf, log, sqrt
from statistics import fmean, stdev

import numpy as np

from evenflow.replay.bootstrap import Interval, Sample
from evenflow.tune.blocked import Blocked, Run, blocked
from evenflow.tune.effects import objective_value, relative_difference, value
from evenflow.tune.objective import Goal, Limit
from evenflow.tune.observations import Observations
from evenflow.tune.ranking import Candidate, Kept, Ranking, rank
from evenflow.tune.space import Cell
from evenflow.tune.student import student_t

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
    """After some rounds. `running` are to run again unless `stop` says why not; `ranking` is of all with any run.

    `against_best` is how far the objective of each is above or below the best one's, as a share, by rounds; at 95 %.
    `machine` has the rounds of those that ran in all.
    """

    num_rounds: int
    ranking: Ranking
    running: tuple[Cell, ...]
    out: tuple[tuple[Cell, str], ...]
    stop: Stop | None
    against_best: tuple[tuple[Cell, Interval], ...] = ()
    machine: Blocked | None = None


Round = Mapping[Cell, Observations]


def stand(rounds: Sequence[Round], goal: Goal, *, max_rounds: int, error: float = ERROR) -> Standing:
    """`rounds` are complete. A configuration that is missing from a later round was out by then, or failed."""
    assert rounds and rounds[0], "somebody ran"
    confidence = 1.0 - error / max_rounds
    entered = list(rounds[0])
    running = [cell for cell in entered if all(cell in each for each in rounds)]
    out = {cell: "was out, or failed, before the last round" for cell in entered if cell not in running}
    ranking = rank([(cell, combined([each[cell] for each in rounds])) for cell in running], goal, confidence=confidence)
    machine = _by_rounds(rounds, running, goal)
    if len(rounds) >= _MIN_ROUNDS:
        out |= dict(_worse(rounds, ranking, machine, running, goal))
    left = tuple(cell for cell in running if cell not in out)
    stop = _stop(left, ranking, machine, len(rounds), max_rounds)
    return Standing(
        len(rounds), ranking, left, tuple(out.items()), stop, tuple(_against_best(ranking, machine)), machine
    )


def log_loss(run: Observations, goal: Goal) -> float:
    """The logarithm of the objective, less is better; infinite for one that is not to be had at all."""
    found = objective_value(run, goal)
    if goal.objective.more_is_better:
        return -log(found) if found > 0.0 else inf
    return log(found) if found > 0.0 else -inf


def _by_rounds(rounds: Sequence[Round], running: Sequence[Cell], goal: Goal) -> Blocked | None:
    """Of those whose objective is a number in every round."""
    losses = {cell: [log_loss(each[cell], goal) for each in rounds] for cell in running}
    runs = [
        Run(cell.key, number, loss)
        for cell, found in losses.items()
        if all(abs(each) < inf for each in found)
        for number, loss in enumerate(found)
    ]
    return blocked(runs) if runs else None


def _against_best(ranking: Ranking, machine: Blocked | None) -> Iterator[tuple[Cell, Interval]]:
    best = ranking.best
    if best is None or machine is None or best.cell.key not in machine.settings:
        return
    for each in ranking.candidates:
        if each.cell.key not in machine.settings or each is best:
            continue
        lost = machine.difference(best.cell.key, each.cell.key)
        low, high = lost.low, lost.high
        if low is None or high is None:
            continue
        if ranking.goal.objective.more_is_better:
            yield each.cell, Interval(expm1(-lost.estimate), expm1(-high), expm1(-low))
        else:
            yield each.cell, Interval(expm1(lost.estimate), expm1(low), expm1(high))


def _worse(
    rounds: Sequence[Round], ranking: Ranking, machine: Blocked | None, running: Sequence[Cell], goal: Goal
) -> list[tuple[Cell, str]]:
    best = ranking.best
    if best is None:
        return []
    members = {each.cell for each in ranking.contenders}.union(*ranking.twins)
    found = []
    for cell in running:
        mine = ranking.of(cell)
        assert mine is not None
        if cell == best.cell or mine.low is None:  # too few requests for any interval: nothing is told
            continue
        missed = [against.limit for against in mine.limits if against.kept is Kept.NO]
        if any(_told_missed(limit, [each[cell] for each in rounds], ranking.confidence) for limit in missed):
            found.append((cell, f"misses {', '.join(map(str, missed))}"))
        elif cell not in members and _told_worse(cell, best.cell, machine, rounds, ranking):
            found.append((cell, f"is worse in {goal.objective.title}, whatever the machine does from round to round"))
    return found


def _told_worse(cell: Cell, best: Cell, machine: Blocked | None, rounds: Sequence[Round], ranking: Ranking) -> bool:
    if machine is None or best.key not in machine.settings:
        return False
    if cell.key not in machine.settings:  # nothing to take a logarithm of
        return all(log_loss(each[cell], ranking.goal) == inf for each in rounds)
    num = max(1, len(machine.settings) - 1)
    low = machine.difference(best.key, cell.key, level=ranking.confidence, comparisons=num).low
    return low is not None and low > 0.0


def _told_missed(limit: Limit, runs: Sequence[Observations], confidence: float) -> bool:
    """In rounds like these: by Student's interval of the mean logarithm, without a pair to take the minutes out."""
    ratios = [value(run, limit.statistic) / limit.seconds for run in runs]
    if min(ratios) <= 1.0 or inf in ratios:
        return min(ratios) == inf
    logs = [log(ratio) for ratio in ratios]
    return fmean(logs) > student_t(confidence, len(logs) - 1) * stdev(logs) / sqrt(len(logs))


def _candidate(ranking: Ranking, cell: Cell) -> Candidate:
    found = ranking.of(cell)
    assert found is not None
    return found


def _stop(
    left: Sequence[Cell], ranking: Ranking, machine: Blocked | None, num_rounds: int, max_rounds: int
) -> Stop | None:
    if len(left) <= 1:
        return Stop.ONE_LEFT
    if num_rounds >= _MIN_ROUNDS and _practically_equal(left, ranking, machine):
        return Stop.EQUAL
    return Stop.OUT_OF_ROUNDS if num_rounds >= max_rounds else None


def _practically_equal(left: Sequence[Cell], ranking: Ranking, machine: Blocked | None) -> bool:
    """By the intervals of their objectives' ratios to the best, and with every limit told kept."""
    best = ranking.best
    if best is None or machine is None or not all(cell.key in machine.settings for cell in (best.cell, *left)):
        return False
    for cell in left:
        mine = _candidate(ranking, cell)
        if any(against.kept is not Kept.YES for against in mine.limits):
            return False
        if cell == best.cell:
            continue
        by_load = relative_difference(best, mine, ranking.goal, level=ranking.confidence)
        by_round = machine.difference(
            best.cell.key, cell.key, level=ranking.confidence, comparisons=max(1, len(left) - 1)
        )
        if not (_within(by_load, PRACTICALLY_EQUAL) and _within(by_round, log(1.0 + PRACTICALLY_EQUAL))):
            return False
    return True


def _within(lost: Interval, most: float) -> bool:
    return lost.low is not None and lost.high is not None and max(abs(lost.low), abs(lost.high)) <= most


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
