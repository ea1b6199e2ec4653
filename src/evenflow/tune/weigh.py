"""Whom to choose after a race: what the runs measured and what the simulation predicted, each as far as it is sure.

    measured     the race's losses; off by what the machine does: a run's standard deviation / sqrt(rounds), times 1.8
                 if it is itself known by one degree of freedom, 1.3 by two, 1 by many (Student's t at 68 %)
    predicted    the simulated losses; off by what the cost gets wrong: the search's tolerance
    weighed      their mean, each weighted by one over its error's square, logarithms, from the mean of those compared

On a quiet machine the runs decide. On one whose runs scatter by a tenth, two rounds tell less of configurations that
are predicted to be 3 % apart than the prediction does; to go by the runs alone would be to draw lots. Limits come
first: who misses one live is not weighed.
"""

from collections.abc import Mapping
from math import log1p, sqrt
from statistics import fmean

from evenflow.tune.blocked import Blocked
from evenflow.tune.race import Standing, log_loss
from evenflow.tune.ranking import INDIFFERENCE, Candidate, Ranking
from evenflow.tune.student import student_t

_ONE_SIGMA = 0.6827


def chosen(standing: Standing, predicted: Ranking, tolerance: float) -> tuple[Candidate, str | None]:
    """Who is best by both, and why, if it is not who was best live."""
    best, machine = standing.ranking.nearest, standing.machine
    if standing.ranking.best is None or machine is None or not machine.degrees:
        return best, None
    running = [
        each
        for each in standing.ranking.candidates
        if each.cell in standing.running and each.keeps_limits and each.cell.key in machine.settings
    ]
    losses = {each.cell.key: _predicted(each, predicted) for each in running}
    known = {key: loss for key, loss in losses.items() if loss is not None and abs(loss) < float("inf")}
    if len(known) < len(running) or best.cell.key not in known:
        return best, None
    error = student_t(_ONE_SIGMA, machine.degrees) * machine.sd / sqrt(standing.num_rounds)
    found = weighed({key: _loss(machine, key) for key in known}, error, known, log1p(max(tolerance, INDIFFERENCE)))
    pick = min(running, key=lambda each: found[each.cell.key])
    if found[pick.cell.key] >= found[best.cell.key] - INDIFFERENCE:
        return best, None
    ahead = _loss(machine, pick.cell.key) - _loss(machine, best.cell.key)
    behind = known[best.cell.key] - known[pick.cell.key]
    return pick, (
        f"another one was better live by {ahead:.1%}, but runs of a round scatter by {machine.sd:.1%} on this machine, "
        f"and it was predicted to be worse by {behind:.1%}"
    )


def weighed(
    measured: Mapping[str, float], measured_error: float, predicted: Mapping[str, float], predicted_error: float
) -> dict[str, float]:
    """By key. Each set has a level of its own, which says nothing."""
    trust = predicted_error**2 / (predicted_error**2 + measured_error**2)
    middles = fmean(measured.values()), fmean(predicted.values())
    return {
        key: trust * (loss - middles[0]) + (1 - trust) * (predicted[key] - middles[1]) for key, loss in measured.items()
    }


def _loss(machine: Blocked, key: str) -> float:
    return float(machine.effects[machine.settings.index(key)])


def _predicted(candidate: Candidate, predicted: Ranking) -> float | None:
    found = predicted.of(candidate.cell)
    return log_loss(found.run, predicted.goal) if found is not None else None
