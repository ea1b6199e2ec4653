"""What is counted of requests that ended: their latencies as sketches, the parts of their waits as sums.

A server counts each request in several groups, and in each of them for the slice of time and for ever. Done one by one
that is some hundred small additions per request and, in a process that does other things in between, 300 us. So spans
are gathered; the readings are taken, and the gaps between tokens put into their buckets, once for all of them:

    spans --- Readings (columns, once) --- Count (of the members of one group, once per set) --- Tally, Tally, ...

Sums are added up in the order in which the requests ended, so they are the same however the spans were gathered.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

import numpy as np

from evenflow.observe.sketch import Sketch, bucket_of, buckets_of, count_buckets
from evenflow.observe.spans import RequestSpan

LATENCIES: Final = ("ttft", "itl", "tpot", "e2e", "queue")
TTFT_PARTS: Final = ("intake", "queue", "prefill", "interleaved", "preempted")
_PART: Final = "ttft part: "
_REASON: Final = "queue reason: "
_Counted = tuple[dict[int, int], list[float], float]  # by bucket; sums, one after the other; the largest


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
        self.sums: dict[str, list[float]] = {}


class Readings:
    """Of spans that ended, in order: what is counted of each."""

    def __init__(self, spans: Sequence[RequestSpan]) -> None:
        self._latencies = [_latencies(span) for span in spans]
        self._sums = [_sums(span) for span in spans]
        ends = np.cumsum([len(span.token_times) for span in spans]).tolist()
        times = np.fromiter(chain.from_iterable([span.token_times for span in spans]), np.float64)
        # The gap from one span's last token to the next one's first lies between two of these pieces.
        self._pieces = [slice(end - len(span.token_times), end - 1) for span, end in zip(spans, ends, strict=True)]
        self._gaps = np.diff(times)
        self._buckets = buckets_of(self._gaps)

    def count(self, members: Sequence[int]) -> Count:
        """Of the spans with these places."""
        count = Count(len(members))
        columns: dict[str, list[tuple[int, float]]] = {}
        for member in members:
            for name, bucket, value in self._latencies[member]:
                columns.setdefault(name, []).append((bucket, value))
            sums = self._sums[member]
            if sums:
                count.num_first_tokens += 1
                for key, value in sums:
                    count.sums.setdefault(key, []).append(value)
        for name, column in columns.items():
            buckets, values = zip(*column, strict=True)
            count.latencies[name] = (Counter(buckets), list(values), max(values))
        self._count_gaps(count, members)
        return count

    def _count_gaps(self, count: Count, members: Iterable[int]) -> None:
        pieces = [piece for piece in map(self._pieces.__getitem__, members) if piece.stop > piece.start]
        if pieces:
            gaps = [self._gaps[piece] for piece in pieces]
            buckets = count_buckets(np.concatenate([self._buckets[piece] for piece in pieces]))
            largest = float(np.concatenate(gaps).max())
            count.latencies["itl"] = (buckets, [float(each.sum()) for each in gaps], largest)


def _latencies(span: RequestSpan) -> list[tuple[str, int, float]]:
    """(name, bucket, seconds) of what it has."""
    found = [("queue", span.queue_seconds), ("ttft", span.ttft_seconds)]
    if span.completed:
        found += [("e2e", span.e2e_seconds), ("tpot", span.tpot_seconds)]
    return [(name, bucket_of(seconds), seconds) for name, seconds in found if seconds is not None]


def _sums(span: RequestSpan) -> list[tuple[str, float]]:
    """(key, seconds); empty without a first token."""
    parts = span.ttft_parts
    if parts is None:
        return []
    seconds = (parts.intake, sum(parts.queue.values()), parts.prefill, parts.interleaved, parts.preempted)
    found = [(_PART + name, value) for name, value in zip(TTFT_PARTS, seconds, strict=True)]
    return found + [(_REASON + reason, value) for reason, value in parts.queue.items()]
