"""The page of a comparison: a sentence of what the data carry, the table behind it, and the distributions."""

from collections.abc import Iterator, Sequence

from evenflow.observe.summary import format_seconds
from evenflow.replay.compare import Comparison, Row
from evenflow.replay.measure import HEADLINE, values_of, window_of
from evenflow.replay.result import Result
from evenflow.report.charts import Chart, cdf
from evenflow.report.page import Cell, Table, header, render


def compare_page(comparisons: Sequence[Comparison]) -> str:
    base = comparisons[0].base
    runs = [base, *(comparison.other for comparison in comparisons)]
    return render(
        "compare.html",
        " vs ".join(run.name for run in runs),
        comparisons=[_section(comparison) for comparison in comparisons],
        distributions=list(_distributions(runs)),
        groups=[
            (f"{comparison.other.name}: {name} ({num} pairs)", row_table(comparison, rows))
            for comparison in comparisons
            for name, num, rows in comparison.groups
        ],
        runs=_facts(runs),
    )


def _section(comparison: Comparison) -> dict[str, object]:
    return {
        "sentence": comparison.sentence,
        "told": any(row.differs for row in comparison.rows),
        "pairs": describe_pairs(comparison),
        "remarks": comparison.remarks,
        "rows": row_table(comparison, comparison.rows),
    }


def describe_pairs(comparison: Comparison) -> str:
    return (
        f"{comparison.num_pairs} pairs of requests in {comparison.num_blocks} blocks; "
        f"{comparison.num_unpaired} without a partner are left out"
    )


def row_table(comparison: Comparison, rows: Sequence[Row]) -> Table:
    head = header("", comparison.base.name, comparison.other.name, "difference", "interval", "")
    return [head, *(_cells(row) for row in rows)]


def _cells(row: Row) -> list[Cell]:
    style = ("better" if row.better else "worse") if row.differs else ""
    interval = row.interval
    bounds = (
        "too few" if interval.low is None or interval.high is None else _between(interval.low, interval.high, row.unit)
    )
    change = f"{row.relative:+.1%}" if row.relative is not None else ""
    values = [Cell(_shown(value, row.unit)) for value in (row.base, row.other)]
    return [
        Cell(row.title),
        *values,
        Cell(_signed(interval.estimate, row.unit), style),
        Cell(bounds),
        Cell(change, style),
    ]


def _shown(value: float, unit: str) -> str:
    return format_seconds(value) if unit == "s" else f"{value:.3g} {unit}".strip()


def _signed(value: float, unit: str) -> str:
    return ("-" if value < 0 else "+") + _shown(abs(value), unit)


def _between(low: float, high: float, unit: str) -> str:
    """The unit once, where both ends have the same."""
    first, last = _signed(low, unit), _signed(high, unit)
    number, _, of = first.partition(" ")
    return f"{number if last.endswith(f' {of}') else first} to {last}"


def text_rows(comparison: Comparison) -> list[list[str]]:
    """The table for a terminal."""
    return [[cell.text for cell in row] for row in row_table(comparison, comparison.rows)]


def _distributions(runs: Sequence[Result]) -> Iterator[object]:
    for metric in HEADLINE:
        series = []
        for run in runs:
            window = window_of(run.records, run.warm_up_seconds)
            good = [record for record in run.records if record.ok and window.has(record.intended)]
            series.append(cdf(run.name, values_of(metric, good)))
        yield Chart(f"{metric.title}: share at or below", series, y_unit="%", x_log=True, y_top=100.0).render()


def _facts(runs: Sequence[Result]) -> Table:
    names = list(dict.fromkeys(name for run in runs for name in (*run.target, *run.load)))
    rows = [[Cell(name), *(Cell({**run.target, **run.load}.get(name, "–"), "text") for run in runs)] for name in names]
    return [[Cell(""), *(Cell(run.name, "text") for run in runs)], *rows]
