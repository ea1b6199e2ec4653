"""Tails by group (group_tails.py) as a page of text, for whoever has a terminal and no dashboard.

last 1m                    n  TTFT P50      P95      P99  ...
all                       44   49.5 ms        -        -
1-128 in, 1-32 out        36   43.9 ms        -        -
class default             44   49.5 ms        -        -
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from evenflow.observe.group_tails import GroupRow
from evenflow.observe.summary import format_seconds
from evenflow.observe.tails import PERCENTS

_NAMES: Final = {"ttft": "TTFT", "itl": "ITL", "e2e": "E2E", "queue": "queue"}
_WITHHELD: Final = "-"


def render_stats(
    engine: Mapping[str, object] | None, finished: Mapping[str, int], windows: Mapping[str, Sequence[GroupRow]]
) -> str:
    return "\n".join(_lines(engine, finished, windows)) + "\n"


def _lines(
    engine: Mapping[str, object] | None, finished: Mapping[str, int], windows: Mapping[str, Sequence[GroupRow]]
) -> Iterator[str]:
    if engine is None:
        yield "no step yet"
    else:
        yield (
            "step {step}: {running} running, {waiting} waiting, {kv_blocks_used} of {kv_blocks_total} KV blocks, "
            "at most {token_budget} tokens"
        ).format_map(engine)
    yield "finished: " + (", ".join(f"{count:,} {reason}" for reason, count in sorted(finished.items())) or "none")
    for window, rows in windows.items():
        yield ""
        yield from _table("since the start" if window == "start" else f"last {window}", rows)
    yield ""
    yield f"{_WITHHELD}: too few requests to tell"


def _table(title: str, rows: Sequence[GroupRow]) -> Iterator[str]:
    percents = [f"P{percent}" for percent in PERCENTS]
    head = [
        f"{name} {percents[0]}" if index == 0 else each
        for name in _NAMES.values()
        for index, each in enumerate(percents)
    ]
    yield f"{title:28}{'n':>8} " + "".join(f"{each:>10}" for each in head)
    for row in rows:
        tails = [value for name in _NAMES for value in row.latencies[name].tail().percentiles]
        cells = (_WITHHELD if value is None else format_seconds(value) for value in tails)
        yield f"{_name(row):28}{row.num_requests:>8,} " + "".join(f"{cell:>10}" for cell in cells)


def _name(row: GroupRow) -> str:
    """A client chose a tenant's name: what would leave its place in the table is escaped or cut."""
    if row.view in ("all", "lengths"):
        return row.name or "all"
    name = row.name or "(none)"
    return f"{row.view} {name if name.isprintable() else ascii(name)}"[:28]
