"""The page of one run: may it be believed, how long did things take, for whom, when, and what was sent."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec
import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from evenflow.observe.length_groups import span_names
from evenflow.observe.summary import format_seconds
from evenflow.replay.assess import Assessed
from evenflow.replay.measure import (
    GROUPS,
    HEADLINE,
    Group,
    Measured,
    Metric,
    MetricRow,
    values_of,
)
from evenflow.replay.record import Record
from evenflow.replay.result import Result
from evenflow.report.charts import Chart, Series, cdf
from evenflow.report.page import Cell, Table, header, render, seconds_cell

_BINS = 80
_MIN_IN_BIN = 5


def replay_page(assessed: Assessed) -> str:
    result, measured, verdict = assessed.result, assessed.measured, assessed.verdict
    window = measured.window
    good = [r for r in result.records if r.ok and window.has(r.intended)]
    return render(
        "replay.html",
        result.name,
        verdict=verdict,
        measured=measured,
        lag=format_seconds(verdict.dispatch_lag_p99) if verdict.dispatch_lag_p99 else None,
        allowed_lag=format_seconds(verdict.allowed_lag) if verdict.allowed_lag is not None else None,
        tiles=list(_tiles(measured)),
        latency=latency_table(measured.rows),
        window_start=f"{window.start:.1f} s",
        window_end=f"{window.end:.1f} s",
        distributions=[_distribution(metric, good) for metric in HEADLINE],
        series=[chart.render() for chart in _over_time(result.records, measured)],
        heat=msgspec.json.encode(_heat(measured.groups)).decode(),
        groups=list(_group_tables(measured.groups)),
        failures=_failures(measured),
        facts=_facts(result),
        notes=result.notes,
    )


def _distribution(metric: Metric, good: Sequence[Record]) -> Markup:
    series = cdf(metric.title, values_of(metric, good))
    return Chart(f"{metric.title}: share at or below", [series], y_unit="%", x_log=True, y_top=100.0).render()


def _facts(result: Result) -> Table:
    facts = {"began": result.began, **result.target, **result.load}
    return [header("", ""), *([Cell(name), Cell(value, "text")] for name, value in facts.items())]


def _tiles(measured: Measured) -> Iterator[dict[str, str]]:
    rates = measured.rates
    num_failed = sum(num for _, num, _ in measured.failed)
    yield {"value": str(measured.num_planned), "name": "requests planned"}
    yield {"value": str(measured.num_ok), "name": "went well"}
    yield {"value": str(num_failed), "name": "failed"}
    if measured.num_unsent:
        yield {"value": str(measured.num_unsent), "name": "never sent"}
    yield {"value": f"{rates.offered:.3g}/s", "name": "requests offered"}
    yield {"value": f"{rates.completed:.3g}/s", "name": "requests completed"}
    yield {"value": f"{rates.output_tokens:.4g}/s", "name": "output tokens"}
    yield {"value": f"{rates.prompt_tokens:.4g}/s", "name": "prompt tokens"}
    if rates.goodput is not None and measured.share_meeting_slo is not None:
        yield {"value": f"{rates.goodput:.3g}/s", "name": f"goodput ({measured.share_meeting_slo:.1%} meet their SLO)"}


def latency_table(rows: Sequence[MetricRow]) -> Table:
    table = [header("", "n", "mean", "P50", "P95", "P99", "max")]
    for row in rows:
        n = row.tail.num_observations
        mean, most = (seconds_cell(v) if v is not None else Cell("–") for v in (row.mean, row.max))
        table.append([Cell(row.title), Cell(str(n)), mean, *map(seconds_cell, row.tail.percentiles), most])
    return table


_TITLES = {"lengths": "Length groups", "class": "Service classes", "tenant": "Tenants"}


def _group_tables(groups: Sequence[Group]) -> Iterator[tuple[str, Table]]:
    for kind, title in _TITLES.items():
        members = [group for group in groups if group.kind == kind]
        if members:
            yield title, group_table(members)


def group_table(groups: Sequence[Group]) -> Table:
    titles = [f"{metric.title} P{percent}" for metric in HEADLINE for percent in (50, 95, 99)]
    table = [header("", "n", "failed", *titles)]
    for group in groups:
        tails = [seconds_cell(value) for row in group.rows for value in row.tail.percentiles]
        table.append([Cell(group.name), Cell(str(group.num_requests)), Cell(str(group.num_failed)), *tails])
    return table


def _heat(groups: Sequence[Group]) -> dict[str, object]:
    inputs, outputs = span_names(GROUPS.input_edges), span_names(GROUPS.output_edges)
    cells = []
    for group in groups:
        if group.kind == "lengths":
            place = GROUPS.names.index(group.name)
            percents = ("P50", "P95", "P99")
            metrics = {row.name: dict(zip(percents, row.tail.percentiles, strict=True)) for row in group.rows}
            cells.append(
                {
                    "input": inputs[place // len(outputs)],
                    "output": outputs[place % len(outputs)],
                    "n": group.num_requests,
                    "metrics": metrics,
                }
            )
    return {"inputs": inputs, "outputs": outputs, "cells": cells}


def _failures(measured: Measured) -> Table:
    if not measured.failed:
        return []
    rows = [[Cell(reason), Cell(str(num)), Cell(words, "text")] for reason, num, words in measured.failed]
    return [[Cell("reason"), Cell("requests"), Cell("the first one", "text")], *rows]


def _over_time(records: Sequence[Record], measured: Measured) -> Iterator[Chart]:
    """The whole run; what is outside the measured window is shaded."""
    end = max((r.finished for r in records if r.finished is not None), default=0.0)
    if end <= 0.0:
        return
    edges = np.linspace(0.0, end, _BINS + 1)
    middles = ((edges[:-1] + edges[1:]) / 2).tolist()
    good = [record for record in records if record.ok]

    def per_second(name: str, times: Sequence[float], weights: Sequence[int] | None = None) -> Series:
        counts = np.histogram(times, edges, weights=weights)[0] * (_BINS / end)
        return Series(name, middles, counts.tolist())

    sent = [record.sent for record in records if record.sent is not None]
    finished = [record.finished for record in good if record.finished is not None]
    times = [time for record in good for time in record.chunk_times]
    tokens = [num for record in good for num in record.chunk_tokens]
    ttfts = [(record.intended, record.ttft) for record in good if record.ttft is not None]
    window = measured.window
    plain = Chart("", (), shaded=((0.0, window.start), (window.end, end)), x_range=(0.0, end))
    requests = (per_second("sent", sent), per_second("completed", finished))
    yield replace(plain, title="requests per second", series=requests)
    yield replace(plain, title="output tokens per second", series=(per_second("tokens", times, tokens),))
    yield replace(plain, title="requests in flight", series=(_in_flight(records, middles),))
    late = tuple(_binned(ttfts, edges, middles))
    yield replace(plain, title="TTFT of requests due then", series=late, y_unit="s", y_log=True)


def _in_flight(records: Sequence[Record], at: Sequence[float]) -> Series:
    sent = np.sort([record.sent for record in records if record.sent is not None])
    ended = np.sort([record.finished for record in records if record.finished is not None and record.sent is not None])
    counts = np.searchsorted(sent, at, side="right") - np.searchsorted(ended, at, side="right")
    return Series("in flight", at, counts.astype(float).tolist())


def _binned(
    pairs: Sequence[tuple[float, float]], edges: NDArray[np.float64], middles: Sequence[float]
) -> Iterator[Series]:
    """Median and maximum; nothing where there are too few to say."""
    bins: list[list[float]] = [[] for _ in middles]
    for at, value in pairs:
        bins[min(int(np.searchsorted(edges, at, side="right")) - 1, len(bins) - 1)].append(value)
    enough = [values if len(values) >= _MIN_IN_BIN else [] for values in bins]
    yield Series("median", middles, [float(np.median(values)) if values else None for values in enough])
    yield Series("largest", middles, [max(values) if values else None for values in bins])
