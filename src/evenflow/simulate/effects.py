"""The effect of a change from two simulations of the same requests: figures before and after, by paired intervals.

Both have the same requests at the same times and the same scatter of step times, so what is due to those cancels out,
and blocks of neighbours are resampled from both at once (replay/bootstrap.py). Throughput is of the stretch until the
first of the two runs was done: later, one of them would only be waiting for the other.

Everybody comes first, then each length group, and each tenant and class where there are several: who gains by a change
and who pays for it are often not the same.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from evenflow.diagnose.effect import EVERYBODY, Effect, EffectRow
from evenflow.replay.bootstrap import Floats, Sample, blocks_of, difference, resampled_mean, value_of
from evenflow.replay.compare import LEVEL, MIN_PAIRS, Row, compare
from evenflow.replay.measure import GROUPS, HEADLINE, length_group, values_of
from evenflow.replay.record import Record
from evenflow.replay.result import Result
from evenflow.simulate.outcome import MANY_GUESSES

THROUGHPUT = "output tokens/s"
SHOWN = ("TTFT", "ITL")
MOST_GROUPS = 12
"""Tenants or classes; the largest ones. There are no more length groups than 20."""
_SEED = 20261130  # of the resamples: the same log gives the same intervals

Errors = Mapping[tuple[str, str], float]
"""By group and metric, how far the simulation of the run as it was is off, as a share."""


def effect_of(before: Result, after: Result, errors: Errors, *, share_outside: float, notes: Sequence[str]) -> Effect:
    """`before` and `after` have the same requests in the same order."""
    pairs = [pair for pair in zip(before.records, after.records, strict=True) if pair[0].ok and pair[1].ok]
    lost = sum(record.ok for record in before.records) - len(pairs)
    said = tuple(notes)
    if lost:
        said = (f"{lost} requests that are answered now would be refused or cut short", *said)
    if len(pairs) < MIN_PAIRS:
        few = f"{len(pairs)} requests are answered both ways, and {MIN_PAIRS} are the fewest that can be compared"
        return Effect(share_outside=share_outside, notes=said, unknown=few)
    found = compare(before, after)
    rows = [
        *_compared(EVERYBODY, found.num_pairs, found.rows, errors),
        _throughput(before, after, errors.get((EVERYBODY, THROUGHPUT))),
    ]
    for group, members in _groups(pairs):
        rows += _group(before, after, group, members, errors)
    if share_outside > MANY_GUESSES:
        rows = [replace(row, is_guess=True) for row in rows]
    return Effect(tuple(rows), share_outside, said)


Pair = tuple[Record, Record]


def _groups(pairs: Sequence[Pair]) -> Iterator[tuple[str, list[Pair]]]:
    """Lengths from short to long; tenants and classes from many requests to few."""
    order = {name: place for place, name in enumerate(GROUPS.names)}
    lengths = _split(pairs, length_group)
    yield from sorted(lengths.items(), key=lambda item: order[item[0]])
    for kind, name_of in (
        ("tenant", lambda record: record.tenant or "default"),
        ("class", lambda record: record.service_class or "default"),
    ):
        found = _split(pairs, name_of)
        largest = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))[:MOST_GROUPS]
        if len(largest) > 1:
            yield from ((f"{kind} {name}", members) for name, members in largest)


def _split(pairs: Sequence[Pair], name_of: Callable[[Record], str]) -> dict[str, list[Pair]]:
    found: dict[str, list[Pair]] = {}
    for pair in pairs:
        found.setdefault(name_of(pair[0]), []).append(pair)
    return found


def _group(before: Result, after: Result, group: str, members: Sequence[Pair], errors: Errors) -> Iterator[EffectRow]:
    """Of fewer than MIN_PAIRS the means alone: they carry no interval."""
    sides = [[pair[side] for pair in members] for side in (0, 1)]
    if len(members) >= MIN_PAIRS:
        both = (replace(result, records=tuple(own)) for result, own in zip((before, after), sides, strict=True))
        yield from _compared(group, len(members), compare(*both).rows, errors)
        return
    for metric in HEADLINE:
        values = [values_of(metric, side) for side in sides]
        if metric.title in SHOWN and all(map(len, values)):
            title = f"{metric.title} mean"
            was, now = (float(each.mean()) for each in values)
            yield EffectRow(title, group, len(members), "s", was, now, error=errors.get((group, title)))


def _compared(group: str, num_requests: int, rows: Sequence[Row], errors: Errors) -> Iterator[EffectRow]:
    for row in rows:
        if row.title.startswith(SHOWN):
            low, high, error = row.interval.low, row.interval.high, errors.get((group, row.title))
            yield EffectRow(row.title, group, num_requests, row.unit, row.base, row.other, low, high, error=error)


def _throughput(before: Result, after: Result, error: float | None) -> EffectRow:
    until = min(max(r.finished for r in result.records if r.finished is not None) for result in (before, after))
    pairs = sorted(zip(before.records, after.records, strict=True), key=lambda pair: pair[0].intended)
    tokens = [np.array([_tokens_until(until, pair[side]) for pair in pairs]) for side in (0, 1)]
    blocks = blocks_of([tokens[1] - tokens[0]])
    base, other = (Sample(each, blocks.of_request) for each in tokens)

    def rate(sample: Sample, draws: Floats) -> Floats:
        return resampled_mean(sample, draws) * (len(pairs) / until)

    found = difference(base, other, rate, blocks, blocks.draws(_SEED), LEVEL)
    was, now = value_of(base, rate, blocks), value_of(other, rate, blocks)
    return EffectRow(
        THROUGHPUT, EVERYBODY, len(pairs), "tokens/s", was, now, found.low, found.high, more_is_better=True, error=error
    )


def _tokens_until(until: float, record: Record) -> float:
    return float((np.asarray(record.chunk_times) <= until).sum()) if record.ok else 0.0
