"""Runs of the same requests against each other: what differs by more than chance, and what the data cannot tell.

The first run is the base. Requests are paired by their id; only pairs that went well in both runs, and were intended
inside both windows, are compared. An interval is at 95 % for all rows of one run together (each at 1 - 5 % / rows), so
that looking at many metrics does not find a difference by itself.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from evenflow.core.errors import ConfigError
from evenflow.observe.tails import carries
from evenflow.replay.bootstrap import (
    Blocks,
    Floats,
    Interval,
    Sample,
    Statistic,
    blocks_of,
    difference,
    resampled_mean,
    resampled_quantile,
    value_of,
)
from evenflow.replay.measure import HEADLINE, Metric, length_group, window_of
from evenflow.replay.record import Record
from evenflow.replay.result import Result
from evenflow.replay.slo import Objectives, parse_bounds

LEVEL = 0.95
MIN_PAIRS = 20
_SEED = 20240607  # of the resamples: the same files give the same intervals


@dataclass(frozen=True, slots=True)
class Row:
    """`base` and `other` are the statistic in each run. `unit` is "s" or "%". More is better only if it says so."""

    title: str
    unit: str
    base: float
    other: float
    interval: Interval
    more_is_better: bool = False

    @property
    def relative(self) -> float | None:
        return (self.other - self.base) / self.base if self.base else None

    @property
    def differs(self) -> bool:
        return self.interval.excludes_zero

    @property
    def better(self) -> bool:
        return (self.other > self.base) == self.more_is_better


@dataclass(frozen=True, slots=True)
class Comparison:
    """Of one run with the base."""

    base: Result
    other: Result
    num_pairs: int
    num_unpaired: int
    num_blocks: int
    rows: tuple[Row, ...]
    groups: tuple[tuple[str, int, tuple[Row, ...]], ...]
    remarks: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """What the data carry."""
        told = [row for row in self.rows if row.differs]
        if not told:
            return f"{self.other.name} against {self.base.name}: no difference that the data carry"
        parts = [f"{row.title} {_change(row)}" for row in told]
        return f"{self.other.name} against {self.base.name}: {'; '.join(parts)}"


def _change(row: Row) -> str:
    how = "better" if row.better else "worse"
    return f"{row.relative:+.1%} ({how})" if row.relative is not None else how


def compare(base: Result, other: Result) -> Comparison:
    pairs, unpaired = _pairs(base, other)
    if len(pairs) < MIN_PAIRS:
        raise ConfigError(
            f"{base.name} and {other.name} have {len(pairs)} requests in common that went well in both; "
            f"{MIN_PAIRS} are the fewest that can be compared. Replay the same trace with the same window and limit"
        )
    blocks = _blocks(pairs)
    draws = blocks.draws(_SEED)
    plan = list(_statistics(pairs, base.slo))
    level = 1.0 - (1.0 - LEVEL) / max(1, len(plan))
    rows = tuple(_row(pairs, each, blocks, draws, level) for each in plan)
    return Comparison(
        base,
        other,
        len(pairs),
        unpaired,
        blocks.num,
        rows,
        tuple(_groups(pairs)),
        tuple(_remarks(base, other)),
    )


Pair = tuple[Record, Record]


def _pairs(base: Result, other: Result) -> tuple[list[Pair], int]:
    """In order of arrival in the base."""
    windows = [window_of(result.records, result.warm_up_seconds) for result in (base, other)]
    inside = [
        {record.request_id: record for record in result.records if record.ok and window.has(record.intended)}
        for result, window in zip((base, other), windows, strict=True)
    ]
    theirs = inside[1]
    pairs = [(record, theirs[name]) for name, record in inside[0].items() if name in theirs]
    pairs.sort(key=lambda pair: pair[0].intended)
    return pairs, len(inside[0]) + len(theirs) - 2 * len(pairs)


def _blocks(pairs: Sequence[Pair]) -> Blocks:
    respects: tuple[Callable[[Record], float | None], ...] = (
        lambda record: record.ttft,
        lambda record: record.tpot,
        lambda record: record.e2e,
    )
    return blocks_of([np.array([(of(b) or 0.0) - (of(a) or 0.0) for a, b in pairs]) for of in respects])


def _carried(num: int, percent: int) -> bool:
    """An interval of a percentile needs twice the observations that its value does."""
    return carries(num // 2, percent)


@dataclass(frozen=True, slots=True)
class _Plan:
    title: str
    unit: str
    observations: Callable[[Record], Floats]
    statistic: Statistic
    more_is_better: bool = False


def _statistics(pairs: Sequence[Pair], slo: str | None) -> Iterator[_Plan]:
    """Those that the smaller of both samples carries."""
    for metric in HEADLINE:
        num = min(sum(len(metric.observations(pair[side])) for pair in pairs) for side in (0, 1))
        if not num:
            continue
        yield _Plan(f"{metric.title} mean", "s", metric.observations, resampled_mean)
        for percent in (50, 95, 99):
            if _carried(num, percent):
                yield _percentile(metric, percent)
    if slo is not None:
        objectives = Objectives(parse_bounds(slo))
        yield _Plan(
            "meet their SLO",
            "%",
            lambda record: np.array([100.0 * objectives.met(record)]),
            resampled_mean,
            more_is_better=True,
        )


def _percentile(metric: Metric, percent: int) -> _Plan:
    statistic = partial(resampled_quantile, percent=percent)
    return _Plan(f"{metric.title} P{percent}", "s", metric.observations, statistic)


def _row(pairs: Sequence[Pair], plan: _Plan, blocks: Blocks, draws: Floats, level: float) -> Row:
    base, other = (_sample(pairs, side, plan, blocks) for side in (0, 1))
    return Row(
        plan.title,
        plan.unit,
        value_of(base, plan.statistic, blocks),
        value_of(other, plan.statistic, blocks),
        difference(base, other, plan.statistic, blocks, draws, level),
        plan.more_is_better,
    )


def _sample(pairs: Sequence[Pair], side: int, plan: _Plan, blocks: Blocks) -> Sample:
    values = [plan.observations(pair[side]) for pair in pairs]
    counts = [len(each) for each in values]
    return Sample(np.concatenate(values), np.repeat(blocks.of_request, counts))


def _groups(pairs: Sequence[Pair]) -> Iterator[tuple[str, int, tuple[Row, ...]]]:
    """Each length group by itself, P50 and P95. Its intervals are at 95 % each, for looking."""
    by: dict[str, list[Pair]] = {}
    for pair in pairs:
        by.setdefault(length_group(pair[0]), []).append(pair)
    for name, members in sorted(by.items(), key=lambda item: -len(item[1])):
        if len(members) < MIN_PAIRS:
            continue
        blocks = _blocks(members)
        draws = blocks.draws(_SEED, 500)
        plans = []
        for metric in HEADLINE:
            num = min(sum(len(metric.observations(pair[side])) for pair in members) for side in (0, 1))
            plans += [_percentile(metric, percent) for percent in (50, 95) if _carried(num, percent)]
        yield name, len(members), tuple(_row(members, plan, blocks, draws, LEVEL) for plan in plans)


def _remarks(base: Result, other: Result) -> Iterator[str]:
    """What makes the runs unlike in more than their server."""
    simulated = [run.target.get("server") == "simulated" for run in (base, other)]
    if simulated[0] != simulated[1]:
        one, live = (base, other) if simulated[0] else (other, base)
        yield (
            f"{one.name} is simulated and {live.name} was measured: between them is also what the cost gets wrong, and "
            "HTTP; `evenflow validate` says how much"
        )
    for name in sorted(base.load.keys() | other.load.keys()):
        a, b = base.load.get(name, "-"), other.load.get(name, "-")
        if a != b and name != "content seed" and not (name == "pacing" and any(simulated)):  # that has none
            yield f"{name} differs: {a} | {b}"
    seed = base.load.get("content seed")
    if seed is not None and seed == other.load.get("content seed"):  # a simulation has none, and an empty cache
        yield "both runs sent the same content: the later one may have been served from a warm prefix cache"
    yield "an interval knows the spread inside these two runs, not what happened to the machine between them"
