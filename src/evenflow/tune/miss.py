"""No configuration keeps the limits: how near one comes, and what stands in the way.

one limit is missed by every cell        the machine is too slow for it at this load, whatever the knobs;
                                         or the knobs' range ends too early: then the best value lies at its edge
each is kept by some cell, never all     they pull against each other: one must give, or the load must shrink
"""

from collections.abc import Iterator

from evenflow.observe.summary import format_seconds
from evenflow.tune.effects import completed
from evenflow.tune.equal import roomiest_first
from evenflow.tune.objective import Limit
from evenflow.tune.ranking import Candidate, Ranking
from evenflow.tune.search import Found
from evenflow.tune.space import Space

_SATURATED = 0.95


def misses(found: Found) -> list[str]:
    """What there is to say where no simulated configuration keeps the limits, and the chosen one does not either."""
    if found.keeps_limits or found.predicted.best is not None:
        return []
    return list(explain_miss(found.choice, found.predicted, found.search.space))


def explain_miss(nearest: Candidate, ranking: Ranking, space: Space) -> Iterator[str]:
    """Sentences, the most important first. `nearest` is the choice: live it may be another than the simulation's."""
    binding = [against for against in nearest.limits if against.ratio > 1.0]
    missed = ", ".join(
        f"{each.limit.statistic.title} {format_seconds(each.value)} where {format_seconds(each.limit.seconds)} is asked"
        for each in binding
    )
    yield f"no configuration keeps every limit; the nearest miss is {space.label(nearest.cell)}: {missed}"
    unreachable = []
    for index, limit in enumerate(ranking.goal.limits):
        lowest = _lowest(index, nearest, ranking)
        if lowest.limits[index].ratio > 1.0:
            unreachable.append(limit)
            yield from _out_of_reach(limit, lowest, index, ranking, space)
    if not unreachable:
        names = " and ".join(against.limit.statistic.title for against in nearest.limits)
        yield f"every limit is kept by some configuration, but never all at once: {names} pull against each other"
    share = _completed_share(nearest)
    if share < _SATURATED:
        yield (
            f"the machine is saturated: {share:.0%} of the requests that came were completed in the time they came in, "
            "so waiting grows with the length of the run; a smaller load or a faster machine helps, no knob does"
        )
    if nearest.run.num_failed:
        yield f"{nearest.run.num_failed} of {nearest.run.num_planned} requests failed there, and keep no limit"


def _lowest(index: int, nearest: Candidate, ranking: Ranking) -> Candidate:
    """Of those that come equally low the one that was named already, or else the one that stands for equal ones."""
    least = min(each.limits[index].value for each in ranking.candidates)
    alike = {each.cell: each for each in ranking.candidates if each.limits[index].value == least}
    return alike.get(nearest.cell) or alike[roomiest_first(list(alike))[0]]


def _out_of_reach(limit: Limit, lowest: Candidate, index: int, ranking: Ranking, space: Space) -> Iterator[str]:
    value = lowest.limits[index].value
    yield (
        f"{limit.statistic.title} is at least {format_seconds(value)} anywhere in the grid "
        f"({space.label(lowest.cell)}); {format_seconds(limit.seconds)} is out of its reach"
    )
    for axis in space.varied:
        if not axis.is_ordered:
            continue
        found = [ranking.of(lowest.cell.with_value(axis.name, each)) for each in sorted(axis.values)]
        values = [each.limits[index].value for each in found if each is not None]
        if len(values) > 1 and values[-1] < values[0] and values[-1] == min(values) and values[-1] < values[-2]:
            yield f"it still falls at the largest {axis.name} of the grid: larger ones are worth a look"
        elif len(values) > 1 and values[0] < values[-1] and values[0] == min(values) and values[0] < values[1]:
            yield f"it still falls at the smallest {axis.name} of the grid: smaller ones are worth a look"


def _completed_share(candidate: Candidate) -> float:
    run = candidate.run
    offered = len(run.samples["ttft"].values) / run.seconds
    return completed(run) / offered if offered else 1.0
