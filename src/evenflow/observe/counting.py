"""Many requests that ended, counted in several tallies each, in columns.

A server counts each request in several groups, and in each of them for the slice of time and for ever. Done one by one
that is a hundred observations per request, most of what recording cost. So readings are taken once, and requests that
belong to the same tallies (a *cell*) are counted together:

    spans --- readings, one row each ---------- sums: one pass for all tallies; maxima: by cell
          \\-- gaps between tokens, one array --- places: of each cell, shared by its tallies

Sums are added up in the order in which the requests ended, beginning at what the tally has, so they are the same
however the requests were gathered: `bincount` adds its weights one after the other.
"""

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from evenflow.observe.sketch import buckets_of
from evenflow.observe.spans import RequestSpan
from evenflow.observe.tally import BUCKETS, COLUMNS, LATENCIES, NUM_LATENCIES, Tally
from evenflow.observe.waits import WAIT_REASONS

_ITL: Final = LATENCIES.index("itl")
_FIRST_PLACES: Final = np.arange(NUM_LATENCIES) * BUCKETS
_REASON_INDEX: Final = {reason: index for index, reason in enumerate(WAIT_REASONS)}
_NONE: Final = float("nan")
_NO_PARTS: Final = (0.0,) * (len(COLUMNS) - NUM_LATENCIES)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def count(spans: Sequence[RequestSpan], cells: Sequence[int], tallies: Sequence[Sequence[Tally]]) -> None:
    """Add each of these spans to all tallies of its cell: `tallies[cells[i]]` are those of `spans[i]`.

    Every cell has the same number of tallies, and a span; cells are numbered from 0.
    """
    rows = chain.from_iterable([_readings(span) for span in spans])
    readings = np.fromiter(rows, np.float64, len(spans) * len(COLUMNS)).reshape(len(spans), -1)
    observed = ~np.isnan(readings)
    readings[~observed] = 0.0
    cell_of = np.array(cells)
    numbers = {tally: number for number, tally in enumerate(dict.fromkeys(chain.from_iterable(tallies)))}
    tallies_of_cell = np.array([[numbers[tally] for tally in cell] for cell in tallies])
    _add_up(list(numbers), tallies_of_cell[cell_of], readings, [span.ttft_parts is not None for span in spans])

    order = np.argsort(cell_of, kind="stable")  # from here on cell by cell
    gaps, num_gaps = _gaps([spans[index] for index in order.tolist()])
    edges = np.concatenate([[0], np.cumsum(np.bincount(cell_of))])
    gap_edges = np.concatenate([[0], np.cumsum(num_gaps)])[edges]
    latencies, observed = readings[order, :NUM_LATENCIES], observed[order, :NUM_LATENCIES]
    observed[:, _ITL] = False  # a sum, and none that a sketch knows
    _gather(tallies, (latencies, observed, edges), (gaps, gap_edges))
    largest = np.maximum.reduceat(latencies, edges[:-1])
    largest[:, _ITL] = 0.0
    with_gaps = gap_edges[1:] > gap_edges[:-1]
    if len(gaps):
        largest[with_gaps, _ITL] = np.maximum.reduceat(gaps, gap_edges[:-1][with_gaps])
    _raise_largest(list(numbers), tallies_of_cell, largest)


def _readings(span: RequestSpan) -> tuple[float, ...]:
    """As in COLUMNS; a latency that the span has not is nan, and that of ITL the sum of its gaps."""
    ttft, queue, times, parts = span.ttft_seconds, span.queue_seconds, span.token_times, span.ttft_parts
    e2e, tpot = (span.e2e_seconds, span.tpot_seconds) if span.completed else (None, None)
    latencies = (
        _NONE if ttft is None else ttft,
        times[-1] - times[0] if len(times) > 1 else _NONE,
        _NONE if tpot is None else tpot,
        _NONE if e2e is None else e2e,
        _NONE if queue is None else queue,
    )
    if parts is None:
        return latencies + _NO_PARTS
    queued, reasons = 0.0, [0.0] * len(WAIT_REASONS)
    for reason, seconds in parts.queue.items():
        queued += seconds
        reasons[_REASON_INDEX[reason]] = seconds
    return (*latencies, parts.intake, queued, parts.prefill, parts.interleaved, parts.preempted, *reasons)


def _add_up(tallies: Sequence[Tally], tallies_of: Ints, readings: Floats, has_first_token: Sequence[bool]) -> None:
    """`tallies_of` are the numbers of each span's tallies. Counts and sums, by `bincount` over tally x column."""
    num_requests = np.bincount(tallies_of.ravel()).tolist()
    num_first_tokens = np.bincount(tallies_of[np.array(has_first_token)].ravel(), minlength=len(tallies)).tolist()
    columns = np.flatnonzero(readings.any(axis=0))  # a request waits for few of the reasons that there are
    bins = tallies_of[:, :, None] * len(columns) + np.arange(len(columns))
    weights = np.broadcast_to(readings[:, None, columns], bins.shape)
    sums = np.array([tally.sums for tally in tallies])
    before = sums[:, columns].ravel()
    bins, weights = np.concatenate([np.arange(len(before)), bins.ravel()]), np.concatenate([before, weights.ravel()])
    sums[:, columns] = np.bincount(bins, weights).reshape(len(tallies), -1)
    for number, tally in enumerate(tallies):
        tally.num_requests += num_requests[number]
        tally.num_first_tokens += num_first_tokens[number]
        tally.sums[:] = sums[number]


def _gather(
    tallies: Sequence[Sequence[Tally]],
    latencies: tuple[Floats, NDArray[np.bool_], Ints],
    gaps: tuple[Floats, Ints],
) -> None:
    """Latencies, which of them were observed, and where each cell begins and the last ends; the same of gaps."""
    seconds, observed, edges = latencies
    places = (buckets_of(seconds) + _FIRST_PLACES).astype(np.uint16)[observed]
    gap_places = (buckets_of(gaps[0]) + _FIRST_PLACES[_ITL]).astype(np.uint16)
    place_edges = np.concatenate([[0], np.cumsum(observed.sum(axis=1))])[edges]
    pieces = zip(pairwise(place_edges.tolist()), pairwise(gaps[1].tolist()), strict=True)
    for members, ((begin, end), (first_gap, last_gap)) in zip(tallies, pieces, strict=True):
        found = np.concatenate([places[begin:end], gap_places[first_gap:last_gap]])
        for tally in members:
            tally.gather(found)


def _raise_largest(tallies: Sequence[Tally], tallies_of_cell: Ints, largest: Floats) -> None:
    """`largest` is in the order of LATENCIES, a row per cell."""
    found = np.array([tally.largest for tally in tallies])
    for column in tallies_of_cell.T:  # of one view, in which several cells may share a tally
        np.maximum.at(found, column, largest)
    for number, tally in enumerate(tallies):
        tally.largest[:] = found[number]


def _gaps(spans: Sequence[RequestSpan]) -> tuple[Floats, Ints]:
    """Between the tokens of each span, one span after the other, and how many each has."""
    num_tokens = np.array([len(span.token_times) for span in spans])
    times = np.frombuffer(b"".join([span.token_times for span in spans]))
    gaps = np.diff(times)
    # From one span's last token to the next one's first is none.
    between = np.cumsum(num_tokens)[num_tokens > 0][:-1] - 1
    return np.delete(gaps, between), np.maximum(num_tokens - 1, 0)
