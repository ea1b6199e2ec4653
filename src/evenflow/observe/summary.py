"""A run on one page: the tails of every latency, and what the steps were like. A fold over the events.

Keeps every observation (16 bytes per distinct token gap of a step), which suits runs; a server that runs for ever wants
windows instead.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evenflow.core.events import Arrived, Event, StepRecord
from evenflow.observe.fold import SpanFold
from evenflow.observe.spans import RequestSpan
from evenflow.observe.tails import PERCENTS, Tail, tail_of


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """`unit` is "s", or "" for a plain number."""

    name: str
    unit: str
    tail: Tail


@dataclass(frozen=True, slots=True)
class Summary:
    """`num_finished` is by finish reason. `seconds` runs from the first arrival or step to the end of the last step."""

    rows: tuple[SummaryRow, ...]
    num_finished: dict[str, int]
    num_unfinished: int
    num_without_tpot: int
    num_steps: int
    num_preemptions: int
    num_prompt_tokens: int
    num_output_tokens: int
    seconds: float

    @property
    def output_tokens_per_second(self) -> float | None:
        return self.num_output_tokens / self.seconds if self.seconds > 0.0 else None


class RunSummary:
    """Feed it the events of a run; `summary` may be asked for at any time.

    TTFT counts every request that got a token, E2E and TPOT the completed ones only. Queue length and tokens are
    sampled once per step, preemptions once per finished request.
    """

    def __init__(self) -> None:
        self._spans = SpanFold()
        self._ttft = array("d")
        self._gaps = array("d")
        self._gap_counts = array("q")
        self._tpot = array("d")
        self._e2e = array("d")
        self._step_tokens = array("q")
        self._queue_lengths = array("q")
        self._preemptions = array("q")
        self._num_finished: Counter[str] = Counter()
        self._num_without_tpot = 0
        self._num_preemptions = 0
        self._num_prompt_tokens = 0
        self._num_output_tokens = 0
        self._start: float | None = None
        self._end = 0.0

    def feed(self, events: Iterable[Event]) -> None:
        for event in events:
            update = self._spans.feed(event)
            if isinstance(event, Arrived) and self._start is None:
                self._start = event.time
            if isinstance(event, StepRecord):
                self._take_step(event)
                for gap, count in update.token_gaps:
                    self._gaps.append(gap)
                    self._gap_counts.append(count)
                for span in update.first_tokens:
                    self._take_first_token(span)
            for span in update.finished:
                self._take_finished(span)

    def _take_step(self, record: StepRecord) -> None:
        if self._start is None:
            self._start = record.start
        self._end = record.end
        self._step_tokens.append(record.prefill_tokens + record.decode_tokens)
        self._queue_lengths.append(record.waiting)
        self._num_output_tokens += len(record.emitted)
        self._num_preemptions += record.preemptions

    def _take_first_token(self, span: RequestSpan) -> None:
        if span.ttft_seconds is not None:
            self._ttft.append(span.ttft_seconds)
        self._num_prompt_tokens += span.num_prompt_tokens

    def _take_finished(self, span: RequestSpan) -> None:
        if span.finish_reason is not None:
            self._num_finished[span.finish_reason.value] += 1
        self._preemptions.append(span.num_preemptions)
        if not span.completed or span.e2e_seconds is None:
            return
        self._e2e.append(span.e2e_seconds)
        if span.tpot_seconds is None:
            self._num_without_tpot += 1
        else:
            self._tpot.append(span.tpot_seconds)

    def summary(self) -> Summary:
        return Summary(
            rows=(
                SummaryRow("TTFT", "s", tail_of(self._ttft)),
                SummaryRow("ITL", "s", tail_of(self._gaps, self._gap_counts)),
                SummaryRow("TPOT", "s", tail_of(self._tpot)),
                SummaryRow("E2E", "s", tail_of(self._e2e)),
                SummaryRow("tokens per step", "", tail_of(self._step_tokens)),
                SummaryRow("queue length", "", tail_of(self._queue_lengths)),
                SummaryRow("preemptions per request", "", tail_of(self._preemptions)),
            ),
            num_finished=dict(self._num_finished),
            num_unfinished=self._spans.num_waiting + self._spans.num_running,
            num_without_tpot=self._num_without_tpot,
            num_steps=len(self._step_tokens),
            num_preemptions=self._num_preemptions,
            num_prompt_tokens=self._num_prompt_tokens,
            num_output_tokens=self._num_output_tokens,
            seconds=self._end - self._start if self._start is not None else 0.0,
        )


def summarise(events: Iterable[Event]) -> Summary:
    run = RunSummary()
    run.feed(events)
    return run.summary()


def format_seconds(seconds: float) -> str:
    """Three digits, in the unit that suits."""
    if not seconds:
        return "0 s"
    if seconds >= 0.9995:  # what would round to 1000 is one of the next unit
        return f"{seconds:.3g} s" if seconds < 99.95 else f"{seconds:.0f} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 0.9995e-3 else f"{seconds * 1e6:.3g} us"


def table(rows: Sequence[SummaryRow]) -> list[list[str]]:
    """Header and cells for whoever draws tables. A percentile that the sample cannot carry is `withheld`."""
    cells = [["", "n", *(f"P{percent}" for percent in PERCENTS)]]
    for row in rows:
        shown = [_format(value, row.unit) for value in row.tail.percentiles]
        cells.append([row.name, str(row.tail.num_observations), *shown])
    return cells


def _format(value: float | None, unit: str) -> str:
    if value is None:
        return "withheld"
    return format_seconds(value) if unit == "s" else f"{value:.4g}"


def format_summary(summary: Summary) -> str:
    """Plain text, one line per row of the table and one of totals."""
    finished = ", ".join(f"{count} {reason}" for reason, count in sorted(summary.num_finished.items())) or "none"
    rate = summary.output_tokens_per_second
    totals = (
        f"finished: {finished}; unfinished: {summary.num_unfinished}; steps: {summary.num_steps}; "
        f"preemptions: {summary.num_preemptions}; prompt tokens: {summary.num_prompt_tokens}; "
        f"output tokens: {summary.num_output_tokens}" + (f" ({rate:.4g}/s)" if rate is not None else "")
    )
    return f"{format_rows(summary.rows)}\n{totals}"


def format_rows(rows: Sequence[SummaryRow]) -> str:
    """The table as plain text."""
    cells = table(rows)
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in cells
    )
