"""What a run comes to: tails of every latency, by group, class and tenant, and rates inside the measured window.

    |-- warm-up --|--------------- window ----------------|-- drain --|
    0             start                        last send  end         last answer

Latencies are those of the requests that were *intended* inside the window, however long they took; rates count tokens
and requests by when they came, inside the window only: a drain in which nothing new arrives would water them down.
Requests that failed are in neither; they are counted.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenflow.observe.length_groups import LengthGroups
from evenflow.observe.tails import Tail, tail_of
from evenflow.replay.record import Record
from evenflow.replay.slo import Objectives

GROUPS = LengthGroups()
# Runs shorter than this are measured whole, unless asked otherwise.
_SHORT_SECONDS = 20.0
_WARM_UP_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Window:
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def has(self, instant: float) -> bool:
        return self.start <= instant <= self.end


def window_of(records: Sequence[Record], warm_up_seconds: float | None) -> Window:
    """From the end of the warm-up to the last send. One request, or all at once, leave no such window: then it is the
    whole run, drain included."""
    sent = [record.sent for record in records if record.sent is not None]
    last_send = max(sent, default=0.0)
    finished = max((record.finished for record in records if record.finished is not None), default=last_send)
    if warm_up_seconds is None:
        warm_up_seconds = last_send * _WARM_UP_SHARE if last_send >= _SHORT_SECONDS else 0.0
    if len(sent) < 2 or last_send - warm_up_seconds < 1e-3 * finished:
        return Window(0.0, finished)
    return Window(warm_up_seconds, last_send)


@dataclass(frozen=True, slots=True)
class Metric:
    """`observations` gives those of one request."""

    name: str
    title: str
    observations: Callable[[Record], NDArray[np.float64]]


def _one(value: float | None) -> NDArray[np.float64]:
    return np.zeros(0) if value is None else np.array([value])


METRICS: tuple[Metric, ...] = (
    Metric("ttft", "TTFT", lambda record: _one(record.ttft)),
    Metric("itl", "ITL", Record.token_gaps),
    Metric("tpot", "TPOT", lambda record: _one(record.tpot)),
    Metric("e2e", "E2E", lambda record: _one(record.e2e)),
    Metric("ttft_from_send", "TTFT from actual send", lambda record: _one(record.ttft_from_send)),
    Metric("chunk_gap", "gap between chunks", Record.chunk_gaps),
)
HEADLINE = METRICS[:4]


@dataclass(frozen=True, slots=True)
class MetricRow:
    """Seconds. The mean and the maximum are None if there is no observation; percentiles also if there are too few."""

    name: str
    title: str
    tail: Tail
    mean: float | None
    max: float | None


def values_of(metric: Metric, records: Iterable[Record]) -> NDArray[np.float64]:
    parts = [metric.observations(record) for record in records]
    return np.concatenate(parts) if parts else np.zeros(0)


def metric_row(metric: Metric, records: Iterable[Record]) -> MetricRow:
    values = values_of(metric, records)
    some = len(values) > 0
    tail = tail_of(values)  # type: ignore[arg-type]  # an array is a sequence of its numbers
    mean, most = (float(values.mean()), float(values.max())) if some else (None, None)
    return MetricRow(metric.name, metric.title, tail, mean, most)


@dataclass(frozen=True, slots=True)
class Group:
    """Requests that are alike, and their headline metrics. `kind` says in what."""

    kind: str
    name: str
    num_requests: int
    num_failed: int
    rows: tuple[MetricRow, ...]


@dataclass(frozen=True, slots=True)
class Rates:
    """Per second of the window."""

    offered: float
    completed: float
    prompt_tokens: float
    output_tokens: float
    goodput: float | None


@dataclass(frozen=True, slots=True)
class Measured:
    """`num_planned` = `num_ok` + failed (by reason) + `num_unsent`, over the whole run; the rest is of the window."""

    window: Window
    num_planned: int
    num_ok: int
    num_unsent: int
    failed: tuple[tuple[str, int, str], ...]
    num_in_window: int
    num_without_tpot: int
    share_meeting_slo: float | None
    rates: Rates
    rows: tuple[MetricRow, ...]
    groups: tuple[Group, ...]
    cached_share: float | None


def measure(records: Sequence[Record], objectives: Objectives | None, warm_up_seconds: float | None) -> Measured:
    window = window_of(records, warm_up_seconds)
    inside = [record for record in records if record.sent is not None and window.has(record.intended)]
    good = [record for record in inside if record.ok]
    met = sum(map(objectives.met, inside)) if objectives is not None else None
    return Measured(
        window=window,
        num_planned=len(records),
        num_ok=sum(record.ok for record in records),
        num_unsent=sum(record.sent is None and record.reason is None for record in records),
        failed=_failures(records),
        num_in_window=len(inside),
        num_without_tpot=sum(record.tpot is None for record in good),
        share_meeting_slo=met / len(inside) if met is not None and inside else None,
        rates=_rates(records, inside, window, met),
        rows=tuple(metric_row(metric, good) for metric in METRICS),
        groups=tuple(_groups(inside)),
        cached_share=_cached_share(good),
    )


def _failures(records: Sequence[Record]) -> tuple[tuple[str, int, str], ...]:
    """(reason, how many, the first one's words), the most frequent first."""
    counts: Counter[str] = Counter()
    first: dict[str, str] = {}
    for record in records:
        if record.reason is not None:
            counts[record.reason.value] += 1
            first.setdefault(record.reason.value, record.detail or "")
    return tuple((reason, num, first[reason]) for reason, num in counts.most_common())


def _rates(records: Sequence[Record], inside: Sequence[Record], window: Window, met: int | None) -> Rates:
    good = [record for record in records if record.ok]
    output = sum(
        num
        for record in good
        for time, num in zip(record.chunk_times, record.chunk_tokens, strict=True)
        if window.has(time)
    )
    # Without a span there is no rate; nothing was sent then.
    seconds = window.seconds or float("inf")
    return Rates(
        offered=len(inside) / seconds,
        completed=sum(record.finished is not None and window.has(record.finished) for record in good) / seconds,
        prompt_tokens=sum(r.num_prompt_tokens for r in good if window.has(r.chunk_times[0])) / seconds,
        output_tokens=output / seconds,
        goodput=None if met is None else met / seconds,
    )


def _cached_share(records: Sequence[Record]) -> float | None:
    """Of the prompt tokens that the server found in its prefix cache, if it says so."""
    said = [(r.cached_tokens, r.num_prompt_tokens) for r in records if r.cached_tokens is not None]
    return sum(cached for cached, _ in said) / sum(num for _, num in said) if said else None


def length_group(record: Record) -> str:
    """By what was asked for, so that the same request is in the same group whatever the server did."""
    return GROUPS.name_of(record.num_prompt_tokens, record.max_tokens)


def _groups(records: Sequence[Record]) -> Iterable[Group]:
    """By length always; by class and by tenant where there are any."""
    by: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        by["lengths", length_group(record)].append(record)
        if record.service_class is not None:
            by["class", record.service_class].append(record)
        if record.tenant is not None:
            by["tenant", record.tenant].append(record)
    order = {name: index for index, name in enumerate(GROUPS.names)}
    for (kind, name), members in sorted(by.items(), key=lambda item: (item[0][0], order.get(item[0][1], 0), item[0])):
        good = [record for record in members if record.ok]
        rows = tuple(metric_row(metric, good) for metric in HEADLINE)
        yield Group(kind, name, len(members), sum(not record.ok for record in members), rows)
