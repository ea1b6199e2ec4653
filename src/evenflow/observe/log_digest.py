"""What a log holds, on one screen: events by kind, the steps, and the tails of the requests that were asked for.

Latencies are folds over the whole log, so that a filter changes whose figures are shown, and never the figures.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from evenflow.core.events import Event, StepRecord
from evenflow.core.request import RequestId
from evenflow.observe.fold import SpanFold
from evenflow.observe.log_filter import LogFilter
from evenflow.observe.spans import RequestSpan
from evenflow.observe.summary import SummaryRow, format_rows, format_seconds
from evenflow.observe.tails import tail_of


@dataclass(slots=True)
class LogDigest:
    """`seconds` is from the first to the last event that was asked for; steps likewise."""

    num_events: Counter[str] = field(default_factory=Counter)
    begin: float | None = None
    end: float = 0.0
    first_step: int | None = None
    last_step: int = 0
    busy_seconds: float = 0.0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    spans: list[RequestSpan] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return self.end - self.begin if self.begin is not None else 0.0


def digest(events: Iterable[Event], wanted: LogFilter) -> LogDigest:
    """A request is asked for if an event of its own was, or (where nothing says which requests) a step that fed it."""
    found, fold, asked_for = LogDigest(), SpanFold(), _Watch(by_step=not wanted.by_request)
    for event in wanted.select(asked_for.watch(events, fold, found)):
        asked_for.selected = event
    asked_for.settle(found)
    found.spans += [span for span in fold.live() if span.request_id in asked_for.ids]
    return found


class _Watch:
    """Feeds the fold with every event, and counts those that come out of the filter."""

    def __init__(self, *, by_step: bool) -> None:
        self._by_step = by_step
        self.selected: Event | None = None
        self.ids: set[RequestId] = set()
        self._ended: list[RequestSpan] = []

    def watch(self, events: Iterable[Event], fold: SpanFold, found: LogDigest) -> Iterable[Event]:
        for event in events:
            self._ended += fold.feed(event).finished
            yield event
            self.settle(found)

    def settle(self, found: LogDigest) -> None:
        """Count the event that was let through, if one was, and keep the spans that it ended."""
        event, self.selected = self.selected, None
        if event is not None:
            _count(found, event)
            if self._by_step and isinstance(event, StepRecord):
                self.ids.update(request_id for request_id, _ in event.scheduled)
            elif (request_id := getattr(event, "request_id", None)) is not None:
                self.ids.add(request_id)
        for span in self._ended:
            if span.request_id in self.ids:
                found.spans.append(span)
                self.ids.discard(span.request_id)
        self._ended.clear()


def _count(found: LogDigest, event: Event) -> None:
    found.num_events[type(event).__name__] += 1
    if isinstance(event, StepRecord):
        found.first_step = event.step if found.first_step is None else found.first_step
        found.last_step = event.step
        found.busy_seconds += event.end - event.start
        found.prefill_tokens += event.prefill_tokens
        found.decode_tokens += event.decode_tokens
    start, end = (event.start, event.end) if isinstance(event, StepRecord) else (event.time, event.time)
    found.begin = start if found.begin is None else min(found.begin, start)
    found.end = max(found.end, end)


def format_digest(found: LogDigest) -> str:
    counts = ", ".join(f"{count:,} {name}" for name, count in found.num_events.most_common())
    lines = [f"events: {sum(found.num_events.values()):,} in {format_seconds(found.seconds)}: {counts or 'none'}"]
    if not found.num_events:
        return "\n".join([*lines, "nothing in this log is what was asked for"])
    if found.first_step is not None:
        busy = f", busy {found.busy_seconds / found.seconds:.0%} of the time" if found.seconds else ""
        lines.append(
            f"steps: {found.first_step} to {found.last_step}{busy}; "
            f"{found.prefill_tokens:,} prefill and {found.decode_tokens:,} decode tokens"
        )
    spans = found.spans
    for name, values in (
        ("requests", [span.finish_reason.value if span.finish_reason is not None else "unfinished" for span in spans]),
        ("classes", [span.service_class for span in spans]),
        ("tenants", [span.tenant for span in spans]),
    ):
        lines.append(f"{name}: {_most(values)}")
    waits = Counter[str]()
    for span in spans:
        waits.update(span.queue_by_reason)
        waits.update(span.preempted_by_reason)
    reasons = ", ".join(f"{reason} {format_seconds(seconds)}" for reason, seconds in waits.most_common() if seconds > 0)
    lines.append(f"waited for: {reasons or 'nothing'}")
    return "\n".join([*lines, "", format_rows(_rows(spans))])


def _most(values: list[str]) -> str:
    counts = Counter(values)
    shown = [f"{count:,} {name or '(none)'}" for name, count in counts.most_common(8)]
    return ", ".join(shown) + (f" and {len(counts) - 8} more" if len(counts) > 8 else "") if shown else "none"


def _rows(spans: list[RequestSpan]) -> list[SummaryRow]:
    completed = [span for span in spans if span.completed]
    values: dict[str, list[float]] = {
        "TTFT": [span.ttft_seconds for span in spans if span.ttft_seconds is not None],
        "ITL": [gap for span in spans for gap in span.itl_seconds],
        "TPOT": [span.tpot_seconds for span in completed if span.tpot_seconds is not None],
        "E2E": [span.e2e_seconds for span in completed if span.e2e_seconds is not None],
        "queue": [span.queue_seconds for span in spans if span.queue_seconds is not None],
    }
    rows = [SummaryRow(name, "s", tail_of(seconds)) for name, seconds in values.items()]
    rows.append(SummaryRow("prompt tokens", "", tail_of([span.num_prompt_tokens for span in spans])))
    rows.append(SummaryRow("output tokens", "", tail_of([span.num_output_tokens for span in spans])))
    return rows
