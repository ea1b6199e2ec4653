"""What a search found, in sentences: the same ones for the terminal and for the page."""

from collections.abc import Iterator

from evenflow.observe.summary import format_seconds
from evenflow.observe.tails import MIN_EXPECTED_ABOVE
from evenflow.tune.effects import ITL_P99, TTFT_P95, throughput, value
from evenflow.tune.objective import Goal, Statistic
from evenflow.tune.observations import Observations, sample_key
from evenflow.tune.ranking import Candidate, Kept
from evenflow.tune.search import Found


def headline(found: Found) -> str:
    label = found.search.space.label(found.choice.cell)
    how = "measured live" if found.is_live else "simulated"
    if found.keeps_limits:
        return f"{label}: {objective_text(found.choice, found.search.goal)}, {how}"
    return f"nothing keeps every limit; nearest is {label}, {how}"


def objective_text(candidate: Candidate, goal: Goal) -> str:
    if goal.objective.statistic is not None:
        return f"{goal.objective.title} {format_seconds(candidate.objective)}"
    return f"{candidate.objective:.4g} {goal.objective.title}"


def sentences(found: Found) -> Iterator[str]:
    choice, what = found.choice, found.search
    run = choice.run
    yield (
        f"{throughput(run):.4g} output tokens/s, TTFT P95 {shown_seconds(value(run, TTFT_P95))}, "
        f"ITL P99 {shown_seconds(value(run, ITL_P99))}"
    )
    for against in choice.limits:
        told = {Kept.YES: "kept", Kept.OPEN: "the data cannot tell whether it is kept", Kept.NO: "missed"}[against.kept]
        asked = (
            f"{against.limit.statistic.title} {shown_seconds(against.value)} of {format_seconds(against.limit.seconds)}"
        )
        yield f"{asked}: {told}{_between(against.low, against.high)}{_few(against.limit.statistic, run)}"
    ranking = found.predicted
    num = len(ranking.contenders) + sum(map(len, ranking.twins))
    if ranking.best is not None:
        yield (
            f"{num} of {len(ranking.candidates)} configurations cannot be told from the best by these requests at "
            f"{ranking.confidence:.0%} or are within {what.tolerance:.0%} of it, which is how far the cost may be off"
        )
    equal = ranking.equal_to(choice.cell)
    if equal:
        yield (
            f"the same, step for step, as simulated: {'; '.join(map(what.space.label, equal))}; of equal ones the one "
            "with the most room (seats, KV) and the smallest steps stands for all"
        )
    yield from _live_sentences(found)
    outside = found.stages[-1].grid.outside
    if outside:
        here = outside.get(choice.cell, 0.0)
        yield (
            f"in {len(outside)} configurations some steps are beyond what the cost was fitted to, and guessed: "
            f"{here:.1%} of the chosen one's"
        )
    live = f", {format_seconds(found.live_seconds)} of live runs" if found.live_seconds else ""
    yield f"machine time: {format_seconds(found.simulated_seconds)} of simulation{live}"


def _live_sentences(found: Found) -> Iterator[str]:
    for number, stage in enumerate(found.stages):
        race = stage.race
        if race is None or race.standing is None:
            continue
        if len(race.cells) == 1:
            yield "nothing else was in the running: it ran live once, to be sure that it runs"
            continue
        again = "again, with the refitted cost: " if number else ""
        why = race.standing.stop.value if race.standing.stop is not None else "nothing was left to run"
        yield f"{again}{len(race.cells)} configurations raced over {len(race.rounds)} rounds, until {why}"
    if found.weighed is not None:
        yield found.weighed


def shown_ratio(ratio: float) -> str:
    """Of a figure to its limit."""
    if ratio == float("inf"):
        return "never"
    return f"{ratio:.0%}" if ratio < 10.0 else f"{ratio:.3g}×" if ratio < 1e3 else f"{ratio:,.0f}×"


def told_miss(ratio: float) -> str:
    """Of the worst figure to its limit, where nothing beside it says what it is."""
    if ratio == float("inf"):
        return "missed altogether"
    return f"missed: {shown_ratio(ratio)} of the limit" if ratio < 10.0 else f"missed: {shown_ratio(ratio)} the limit"


def shown_seconds(seconds: float) -> str:
    return "never" if seconds == float("inf") else format_seconds(seconds) if seconds > 0.0 else "0 s"


def _between(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return " (too few requests for an interval)"
    return f" ({shown_seconds(max(0.0, low))} to {shown_seconds(high)})"


def _few(statistic: Statistic, run: Observations) -> str:
    """Where fewer than five observations would lie above a percentile, it is the largest ones by another name."""
    sample = run.samples[sample_key(statistic.service_class, statistic.metric)]
    num = len(sample.values) if sample.weights is None else round(float(sample.weights.sum()))
    if statistic.percent is None or num * (100.0 - statistic.percent) >= 100.0 * MIN_EXPECTED_ABOVE:
        return ""
    return f"; {num} observations are few for a P{statistic.percent:g}"
