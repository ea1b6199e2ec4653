"""What is counted of requests that ended: their latencies as sketches, the parts of their waits as sums.

A server counts each request in several groups, and in each of them for the slice of time and for ever. Done one by one
that is a hundred observations and eight walks over its tokens per request, most of what recording cost. So spans are
gathered; the readings are taken, and the gaps between tokens put into their buckets, once for all of them:

    spans --- Readings (columns, once) --- Count (of the members of one group, once per set) --- Tally, Tally, ...

Sums are added up in the order in which the requests ended, so they are the same however the spans were gathered.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

import numpy as np

from evenflow.observe.sketch import Sketch, buckets_of, count_buckets
from evenflow.observe.spans import RequestSpan

LATENCIES: Final = ("ttft", "itl", "tpot", "e2e", "queue")
TTFT_PARTS: Final = ("intake", "queue", "prefill", "interleaved", "preempted")
_PART: Final = "ttft part: "
_REASON: Final = "queue reason: "
_PART_KEYS: Final = tuple(_PART + name for name in TTFT_PARTS)
_ONCE: Final = ("ttft", "queue", "e2e", "tpot")  # of each request at most one
_Counted = tuple[Mapping[int, int], Sequence[float], float]  # by bucket; sums, one after the other; the largest


class Tally:
    """`sums` are seconds by part of the TTFT and by reason of its queue part, over `num_first_tokens` requests."""

    __slots__ = ("latencies", "num_first_tokens", "num_requests", "sums")

    def __init__(self) -> None:
        self.num_requests = 0
        self.num_first_tokens = 0
        self.latencies: dict[str, Sketch] = {}
        self.sums: dict[str, float] = {}

    def add(self, count: "Count") -> None:
        self.num_requests += count.num_requests
        self.num_first_tokens += count.num_first_tokens
        for name, (buckets, totals, largest) in count.latencies.items():
            self._sketch(name).add_counted(buckets, totals, largest)
        for key, values in count.sums.items():
            total = self.sums.get(key, 0.0)
            for value in values:
                total += value
            self.sums[key] = total

    def merge(self, other: "Tally") -> None:
        self.num_requests += other.num_requests
        self.num_first_tokens += other.num_first_tokens
        for name, sketch in other.latencies.items():
            self._sketch(name).merge(sketch)
        for key, total in other.sums.items():
            self.sums[key] = self.sums.get(key, 0.0) + total

    def _sketch(self, name: str) -> Sketch:
        sketch = self.latencies.get(name)
        if sketch is None:
            sketch = self.latencies[name] = Sketch()
        return sketch

    def ttft_parts(self) -> dict[str, float]:
        """Mean seconds per request with a first token; they sum to the mean TTFT."""
        sums, n = self.sums, self.num_first_tokens
        return {part: sums[_PART + part] / n for part in TTFT_PARTS if _PART + part in sums}

    def queue_reasons(self) -> dict[str, float]:
        """Likewise; they sum to the `queue` part."""
        return {
            key.removeprefix(_REASON): total / self.num_first_tokens
            for key, total in sorted(self.sums.items())
            if key.startswith(_REASON)
        }


class Count:
    """What a `Tally` adds for some requests."""

    __slots__ = ("latencies", "num_first_tokens", "num_requests", "sums")

    def __init__(self, num_requests: int) -> None:
        self.num_requests = num_requests
        self.num_first_tokens = 0
        self.latencies: dict[str, _Counted] = {}
        self.sums: dict[str, Sequence[float]] = {}


class Readings:
    """Of spans that ended, in order: what is counted of each. Columns are taken with zip, which is the cheapest."""

    def __init__(self, spans: Sequence[RequestSpan]) -> None:
        self._seconds = [_seconds(span) for span in spans]
        known = np.nan_to_num(np.array(self._seconds, dtype=np.float64))  # None is nan, and its bucket is not asked for
        self._buckets: list[list[int]] = buckets_of(known).tolist()
        self._parts = [_parts(span) for span in spans]
        self._reasons = [span.ttft_parts.queue if span.ttft_parts is not None else {} for span in spans]
        ends = np.cumsum([len(span.token_times) for span in spans]).tolist()
        times = np.fromiter(chain.from_iterable([span.token_times for span in spans]), np.float64)
        # The gap from one span's last token to the next one's first lies between two of these pieces.
        self._pieces = [slice(end - len(span.token_times), end - 1) for span, end in zip(spans, ends, strict=True)]
        self._gaps = np.diff(times)
        self._gap_buckets = buckets_of(self._gaps)
        self._gap_sums = [float(self._gaps[piece].sum()) for piece in self._pieces]

    def count(self, members: Sequence[int]) -> Count:
        """Of the spans with these places; at least one."""
        count = Count(len(members))
        seconds = zip(*[self._seconds[member] for member in members], strict=True)
        buckets = zip(*[self._buckets[member] for member in members], strict=True)
        for name, column, places in zip(_ONCE, seconds, buckets, strict=True):
            values = [value for value in column if value is not None]
            if len(values) < len(column):
                places = tuple([place for place, value in zip(places, column, strict=True) if value is not None])
            if values:
                count.latencies[name] = (Counter(places), values, max(values))
        parts = [each for member in members if (each := self._parts[member]) is not None]
        count.num_first_tokens = len(parts)
        if parts:
            count.sums = dict(zip(_PART_KEYS, zip(*parts, strict=True), strict=True))
        reasons: dict[str, list[float]] = {}
        for member in members:
            for reason, value in self._reasons[member].items():
                reasons.setdefault(_REASON + reason, []).append(value)
        count.sums.update(reasons)
        self._count_gaps(count, members)
        return count

    def _count_gaps(self, count: Count, members: Sequence[int]) -> None:
        members = [member for member in members if self._pieces[member].stop > self._pieces[member].start]
        if members:
            pieces = [self._pieces[member] for member in members]
            buckets = count_buckets(np.concatenate([self._gap_buckets[piece] for piece in pieces]))
            largest = float(np.concatenate([self._gaps[piece] for piece in pieces]).max())
            count.latencies["itl"] = (buckets, [self._gap_sums[member] for member in members], largest)


def _seconds(span: RequestSpan) -> tuple[float | None, ...]:
    """As in _ONCE."""
    if span.completed:
        return span.ttft_seconds, span.queue_seconds, span.e2e_seconds, span.tpot_seconds
    return span.ttft_seconds, span.queue_seconds, None, None


def _parts(span: RequestSpan) -> tuple[float, ...] | None:
    """As in TTFT_PARTS; None without a first token."""
    parts = span.ttft_parts
    if parts is None:
        return None
    return parts.intake, sum(parts.queue.values()), parts.prefill, parts.interleaved, parts.preempted
