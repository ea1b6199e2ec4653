"""The page of a search: the choice and how sure it is, the frontier, the set that cannot be told apart, every knob."""

from collections.abc import Iterator, Mapping, Sequence

from evenflow.observe.summary import format_seconds
from evenflow.replay.bootstrap import Interval
from evenflow.report.charts import Chart, Series
from evenflow.report.page import Cell as Text
from evenflow.report.page import Table, header, render
from evenflow.tune.effects import HEADLINE, ITL_P99, TTFT_P95, Effect, completed, effects, frontier, throughput, value
from evenflow.tune.miss import misses
from evenflow.tune.race import Standing
from evenflow.tune.ranking import Candidate, Ranking, rank
from evenflow.tune.search import Found, Raced
from evenflow.tune.space import Cell, Space, shown
from evenflow.tune.telling import headline, objective_text, sentences, shown_ratio, shown_seconds

_MOST_ROWS = 40


def tune_page(found: Found, facts: Mapping[str, str], notes: Sequence[str]) -> str:
    ranking, space = found.predicted, found.search.space
    centre = ranking.of(found.choice.cell) or ranking.nearest
    return render(
        "tune.html",
        "evenflow tune",
        headline=headline(found),
        verdict_style="" if found.keeps_limits else "caution",
        sentences=list(sentences(found)),
        tiles=list(_tiles(found)),
        misses=misses(found),
        race=_race_table(found),
        race_note=(
            "Against the best of those that ran to the end, at 95 %: a round is one observation, so what the machine "
            "does from one run to the next is in it. The rounds were interleaved."
            + (" Race 2 is by the cost as it was refitted to the runs of race 1." if len(_races(found)) > 1 else "")
        ),
        prediction=_prediction_table(found),
        frontier_charts=[chart.render() for chart in frontier_charts(found)],
        frontier=_candidate_table(frontier(ranking.candidates), found),
        simulated_note="Simulated."
        if not _outside(found)
        else "Simulated; guessed marks steps beyond the cost's hull.",
        contenders=_candidate_table(ranking.contenders, found, twins=ranking.twins),
        set_note=(
            f"Paired by request over {ranking.num_blocks} blocks of neighbouring requests. same: knobs that never "
            "bound, so that the run is the same to the last digit; the one with the most room (seats, KV) and the "
            "smallest steps stands for them, and no live time is spent on telling them apart."
        ),
        effects=[_effect(effect, ranking, space, centre, found) for effect in effects(ranking, space, centre)],
        skipped=_skipped(found),
        facts=[header("", ""), *([Text(name), Text(text, "text")] for name, text in facts.items())],
        notes=notes,
    )


def _outside(found: Found) -> dict[Cell, float]:
    return found.stages[-1].grid.outside


def _tiles(found: Found) -> Iterator[dict[str, str]]:
    run = found.choice.run
    yield {"value": f"{throughput(run):.4g}/s", "name": "output tokens"}
    yield {"value": f"{completed(run):.3g}/s", "name": "requests completed"}
    for statistic in (TTFT_P95, ITL_P99):
        yield {"value": shown_seconds(value(run, statistic)), "name": statistic.title}
    yield {"value": str(len(found.predicted.candidates)), "name": "configurations simulated"}
    yield {"value": format_seconds(found.simulated_seconds), "name": "of simulation"}
    if found.live_seconds:
        yield {"value": format_seconds(found.live_seconds), "name": "of live runs"}


def _candidate_table(
    candidates: Sequence[Candidate], found: Found, twins: Sequence[Sequence[Cell]] | None = None
) -> Table:
    goal, space = found.search.goal, found.search.space
    limits = [f"{limit.statistic.title} / limit" for limit in goal.limits]
    names = ["tokens/s", *(statistic.title for statistic in HEADLINE), *limits]
    extra = [goal.objective.title] if goal.objective.name != "throughput" else []
    rows = [header("", "", *extra, *names, *(["same"] if twins is not None else []))]
    outside = _outside(found)
    for index, each in enumerate(candidates[:_MOST_ROWS]):
        marks = ["chosen"] if each.cell == found.choice.cell else []
        marks += [f"guessed {outside[each.cell]:.0%}"] if each.cell in outside else []
        row = [Text(space.label(each.cell)), Text(", ".join(marks), "better" if "chosen" in marks else "withheld")]
        row += [Text(objective_text(each, goal))] if extra else []
        row += [Text(f"{throughput(each.run):.4g}")]
        row += [Text(shown_seconds(value(each.run, statistic))) for statistic in HEADLINE]
        row += [Text(shown_ratio(against.ratio), "" if against.ratio <= 1 else "worse") for against in each.limits]
        if twins is not None:
            row.append(Text("; ".join(map(space.label, twins[index])), "text"))
        rows.append(row)
    if len(candidates) > _MOST_ROWS:
        rows.append([Text(f"and {len(candidates) - _MOST_ROWS} more"), *(Text("") for _ in rows[0][1:])])
    return rows


def frontier_charts(found: Found) -> Iterator[Chart]:
    """Throughput over TTFT and over ITL, every configuration a dot."""
    ranking = found.predicted
    best = frontier(ranking.candidates)
    contenders = [each for each in ranking.contenders if each not in best]
    others = [each for each in ranking.candidates if each not in best and each not in contenders]
    chosen = [each for each in ranking.candidates if each.cell == found.choice.cell]
    groups = (("others", others), ("confidence set", contenders), ("frontier", best), ("chosen", chosen))
    for statistic in (TTFT_P95, ITL_P99):
        series = []
        for name, members in groups:
            points = [(value(each.run, statistic), throughput(each.run)) for each in members]
            finite = [(x, y) for x, y in points if 0.0 < x < float("inf")]
            xs, ys = [x for x, _ in finite], [y for _, y in finite]
            series.append(Series(name, xs, ys, dots=True, filled=name == "chosen"))
        most = max((y for each in series for y in each.ys if y is not None), default=0.0)
        # Room above the best ones, which are what one looks for.
        yield Chart(f"output tokens/s over {statistic.title}", series, x_unit="s", x_log=True, y_top=1.1 * most or None)


def _effect(effect: Effect, ranking: Ranking, space: Space, centre: Candidate, found: Found) -> dict[str, object]:
    rows: list[list[Text]] = [
        header(
            effect.axis.name, "tokens/s", *(statistic.title for statistic in HEADLINE), "limits", "change", "interval"
        )
    ]
    outside = _outside(found)
    for setting in effect.settings:
        run = setting.candidate.run
        style = "better" if setting.candidate is centre else ""
        guessed = " (guessed)" if setting.candidate.cell in outside else ""
        keeps = "kept" if setting.candidate.keeps_limits else "missed"
        rows.append(
            [
                Text(shown(setting.value) + guessed, style),
                Text(f"{throughput(run):.4g}"),
                *(Text(shown_seconds(value(run, statistic))) for statistic in HEADLINE),
                Text(keeps if ranking.goal.limits else "–", "" if setting.candidate.keeps_limits else "worse"),
                *_change(setting.change, more_is_better=ranking.goal.objective.more_is_better),
            ]
        )
    charts = []
    if effect.axis.is_ordered and len(effect.settings) > 1:
        places = sorted((float(setting.value), setting.candidate) for setting in effect.settings)
        xs = [place for place, _ in places]
        latencies = [
            Series(s.title, xs, [_finite(value(each.run, s)) for _, each in places]) for s in (TTFT_P95, ITL_P99)
        ]
        rates = [Series("output tokens/s", xs, [throughput(each.run) for _, each in places])]
        charts = [
            Chart("throughput", rates, x_unit="", x_log=True, x_ticks=xs).render(),
            Chart("latency", latencies, x_unit="", y_unit="s", x_log=True, y_log=True, x_ticks=xs).render(),
        ]
    return {"name": effect.axis.name, "charts": charts, "cells": rows}


def _finite(seconds: float) -> float | None:
    return seconds if seconds < float("inf") else None


def _change(interval: Interval | None, *, more_is_better: bool) -> list[Text]:
    if interval is None:
        return [Text("chosen", "better"), Text("")]
    if interval.low is None or interval.high is None:
        told = "–" if interval.estimate != interval.estimate else f"{interval.estimate:+.1%}"
        return [Text(told), Text("too few")]
    style = ""
    if interval.excludes_zero:
        style = "better" if (interval.estimate > 0) == more_is_better else "worse"
    return [Text(f"{interval.estimate:+.1%}", style), Text(f"{interval.low:+.1%} to {interval.high:+.1%}")]


def _races(found: Found) -> list[tuple[Ranking, Raced, Standing]]:
    """What sent the cells into each race, the race, and where it left them."""
    return [
        (stage.ranking, stage.race, stage.race.standing)
        for stage in found.stages
        if stage.race is not None and stage.race.standing is not None
    ]


def _numbered(found: Found, number: int, cell: Cell) -> Text:
    """A configuration may run in two races."""
    label = found.search.space.label(cell)
    return Text(f"race {number}: {label}" if len(_races(found)) > 1 else label)


def _race_table(found: Found) -> Table | None:
    rows: list[list[Text]] = []
    goal = found.search.goal
    for number, (_, race, standing) in enumerate(_races(found), 1):
        out, failed, against = dict(race.out), dict(race.failed), dict(standing.against_best)
        for cell in race.cells:
            run = race.runs_of(cell)
            mark = failed.get(cell) or out.get(cell) or ("chosen" if cell == found.choice.cell else "not told worse")
            last = Text(mark, "better" if mark == "chosen" else "text")
            if run is None:
                rows.append([_numbered(found, number, cell), *(Text("") for _ in range(3 + len(HEADLINE))), last])
                continue
            (each,) = rank([(cell, run)], goal).candidates
            rows.append(
                [
                    _numbered(found, number, cell),
                    Text(str(sum(cell in each for each in race.rounds))),
                    Text(objective_text(each, goal)),
                    Text(_against(against.get(cell))),
                    *(Text(shown_seconds(value(run, statistic))) for statistic in HEADLINE),
                    last,
                ]
            )
    if not rows:
        return None
    return [header("", "rounds", goal.objective.title, "against the best", *(s.title for s in HEADLINE), ""), *rows]


def _against(lost: Interval | None) -> str:
    if lost is None or lost.low is None or lost.high is None:
        return ""
    return f"{lost.estimate:+.1%} ({lost.low:+.1%} to {lost.high:+.1%})"


def _prediction_table(found: Found) -> Table:
    """Live runs against the simulation that sent them into the race."""
    rows = [header("", "", "tokens/s", *(statistic.title for statistic in HEADLINE))]
    for number, (ranking, race, _) in enumerate(_races(found), 1):
        for cell in race.cells:
            predicted, measured = ranking.of(cell), race.runs_of(cell)
            if predicted is None or measured is None:
                continue
            label = _numbered(found, number, cell).text
            for name, run in (("predicted", predicted.run), ("measured", measured)):
                figures = [Text(shown_seconds(value(run, statistic))) for statistic in HEADLINE]
                rows.append([Text(label), Text(name), Text(f"{throughput(run):.4g}"), *figures])
                label = ""
    return rows


def _skipped(found: Found) -> Table | None:
    rows = [[Text(each.cell.key), Text(each.reason, "text")] for each in found.search.illegal]
    failed = found.stages[-1].grid.failed.items()
    rows += [[Text(cell.key), Text(f"simulation failed: {why}", "text")] for cell, why in failed]
    if not rows:
        return None
    more = len(rows) - _MOST_ROWS
    rest = [[Text(f"and {more} more"), Text("")]] if more > 0 else []
    return [header("configuration", "why"), *rows[:_MOST_ROWS], *rest]
