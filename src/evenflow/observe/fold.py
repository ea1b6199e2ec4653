"""Events in, spans out, in order; memory is bounded by the requests that live.

A step's events come in this order: who was preempted and scheduled (at the step's start), first tokens and finishes (at
its end), then its `StepRecord`. What a step gave is told by the record, so a request that ended with its own last token
is complete only then.

Compute before the first token costs nothing per step: `_busy_seconds` sums the length of all steps, and a running
request takes part in every step except those whose `left_out` names it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from evenflow.core.events import (
    Arrived,
    ConfigChanged,
    Event,
    Finished,
    FirstToken,
    PolicyChanged,
    Preempted,
    Rejected,
    Scheduled,
    StepRecord,
)
from evenflow.core.plan import LeftOut
from evenflow.core.policy.preemption import PreemptionMode
from evenflow.core.request import FinishReason, RequestId
from evenflow.observe.folded import Folded
from evenflow.observe.spans import RequestSpan, TtftParts
from evenflow.observe.tokens import TokenFold
from evenflow.observe.waits import WaitFold


class _Live:
    """A span and what is needed only while it grows. `busy_before` is None while the request has no seat."""

    __slots__ = (
        "busy_before",
        "compute_seconds",
        "left_out_seconds",
        "lost_tokens",
        "preempted_time",
        "span",
        "swapped",
    )

    def __init__(self, span: RequestSpan) -> None:
        self.span = span
        self.busy_before: float | None = None
        self.left_out_seconds = 0.0  # since it has this seat
        self.compute_seconds = 0.0  # on earlier seats
        self.preempted_time: float | None = None
        self.lost_tokens = 0
        self.swapped = False

    def computed(self, busy_seconds: float) -> float:
        """Seconds of steps that fed this request, so far."""
        if self.busy_before is None:
            return self.compute_seconds
        return self.compute_seconds + busy_seconds - self.busy_before - self.left_out_seconds


# The first fields of a RequestSpan, in order: by keyword it takes as long again.
_BEGINNING: Callable[[Arrived], tuple[Any, ...]] = attrgetter(
    "request_id",
    "time",
    "accepted_time",
    "num_prompt_tokens",
    "max_tokens",
    "flow",
    "tenant",
    "service_class",
    "priority",
)


class SpanFold:
    """Feed it every event of a log in order. Requests whose arrival it has not seen are passed over.

    `preempted_seconds` and `num_recomputed_tokens` are sums over all requests; a stay in the queue counts when it ends.
    `num_swapped` are the waiting requests that have blocks in host memory.
    """

    def __init__(self) -> None:
        self.waits = WaitFold()
        self.preempted_seconds = 0.0
        self.num_recomputed_tokens = 0
        self.num_swapped = 0
        self._live: dict[RequestId, _Live] = {}
        self._tokens = TokenFold()
        self._busy_seconds = 0.0
        self._last_step = 0
        self._num_seated = 0
        self._new_first_tokens: list[_Live] = []
        self._ended_in_step: list[RequestSpan] = []

    @property
    def num_waiting(self) -> int:
        return self.waits.num_waiting

    @property
    def num_running(self) -> int:
        return self._num_seated

    def live(self) -> Iterator[RequestSpan]:
        """The unfinished, in order of arrival, as they stand now."""
        for live in self._live.values():
            live.span.token_times = self._tokens.times(live.span.request_id)
            yield live.span

    def feed(self, event: Event) -> Folded:
        """One event, and what it told."""
        return self.feed_all((event,))

    def feed_all(self, events: Iterable[Event]) -> Folded:
        folded = Folded()
        for event in events:
            match event:
                case StepRecord():
                    self._end_step(event, folded)
                case Scheduled():
                    self._seat(event, folded)
                case FirstToken():
                    self._give_first_token(event)
                case Finished():
                    self._finish(event, folded)
                case Arrived():
                    self._arrive(event)
                case Preempted():
                    folded.preempted.append(event)
                    self._unseat(event)
                case Rejected():
                    folded.rejected.append(event)
                case PolicyChanged():
                    self._move(event)
                case ConfigChanged():
                    pass
        return folded

    def _arrive(self, event: Arrived) -> None:
        span = RequestSpan(*_BEGINNING(event))
        self._live[event.request_id] = _Live(span)
        self.waits.join(event.request_id, event.flow, event.accepted_time)

    def _seat(self, event: Scheduled, folded: Folded) -> None:
        live = self._live.get(event.request_id)
        if live is None:
            return
        self._end_wait(live, event.time)
        self._num_seated += 1
        live.busy_before = self._busy_seconds
        live.left_out_seconds = 0.0
        span = live.span
        if span.first_scheduled_time is None:
            span.first_scheduled_time = event.time
            span.queue_seconds = event.time - span.accepted_time
            span.num_cached_tokens = event.cached_tokens
            folded.admitted.append(span)
            return
        span.num_swapped_in_tokens += event.swapped_in_tokens
        # What the prefix cache still had need not be computed again.
        recomputed = max(0, live.lost_tokens - event.cached_tokens)
        span.num_recomputed_tokens += recomputed
        self.num_recomputed_tokens += recomputed

    def _give_first_token(self, event: FirstToken) -> None:
        live = self._live.get(event.request_id)
        if live is not None:
            span = live.span
            span.first_token_time = event.time
            span.ttft_seconds = event.time - span.arrival_time
            self._new_first_tokens.append(live)

    def _end_wait(self, live: _Live, time: float) -> None:
        span = live.span
        self.num_swapped -= live.swapped
        live.swapped = False
        by_reason = self.waits.leave(span.request_id, time)
        if live.preempted_time is None:
            span.queue_by_reason = by_reason
            return
        span.preempted_times.append((live.preempted_time, time))
        self.preempted_seconds += time - live.preempted_time
        live.preempted_time = None
        for reason, seconds in by_reason.items():
            span.preempted_by_reason[reason] = span.preempted_by_reason.get(reason, 0.0) + seconds

    def _unseat(self, event: Preempted) -> None:
        live = self._live.get(event.request_id)
        if live is None:
            return
        live.compute_seconds = live.computed(self._busy_seconds)
        live.busy_before = None
        live.preempted_time = event.time
        live.lost_tokens = event.lost_tokens
        live.swapped = event.mode is PreemptionMode.SWAP
        self.num_swapped += live.swapped
        live.span.num_preemptions += 1
        live.span.num_lost_tokens += event.lost_tokens
        self._num_seated -= 1
        self.waits.join(event.request_id, live.span.flow, event.time)

    def _move(self, event: PolicyChanged) -> None:
        for request_id, flow in event.moved:
            live = self._live.get(request_id)
            if live is None:
                continue
            live.span.flow = flow
            if live.busy_before is None:
                self.waits.move(request_id, flow, event.time)

    def _finish(self, event: Finished, folded: Folded) -> None:
        live = self._live.get(event.request_id)
        if live is None:
            self._tokens.forget(event.request_id)
            return
        span = live.span
        if live.busy_before is None:
            self._end_wait(live, event.time)
        else:
            self._num_seated -= 1
        span.finish_time = event.time
        span.e2e_seconds = event.time - span.arrival_time
        if span.queue_seconds is None:
            span.queue_seconds = event.time - span.accepted_time
        span.finish_reason = event.reason
        span.num_output_tokens = event.num_output_tokens
        by_own_token = event.reason in (FinishReason.STOP, FinishReason.LENGTH)
        if by_own_token and event.step > self._last_step:
            self._ended_in_step.append(span)  # until the record of this step
        else:
            self._take_leave(span, folded)

    def _take_leave(self, span: RequestSpan, folded: Folded) -> None:
        request_id = span.request_id
        del self._live[request_id]
        times = span.token_times = self._tokens.times(request_id)
        if len(times) > 1:
            span.tpot_seconds = (times[-1] - times[0]) / (len(times) - 1)
        self._tokens.forget(request_id)
        folded.finished.append(span)

    def _end_step(self, record: StepRecord, folded: Folded) -> None:
        folded.steps.append(record)
        start, end = record.start, record.end
        seconds = end - start
        self._busy_seconds += seconds
        self._last_step = record.step
        self.waits.decide(start, record.doors)
        if record.left_out:
            self._stall(record.left_out, seconds)
        folded.token_gaps += self._tokens.give(record.emitted, end)
        if self._new_first_tokens:
            for live in self._new_first_tokens:
                live.span.ttft_parts = self._ttft_parts(live)
                folded.first_tokens.append(live.span)
            self._new_first_tokens.clear()
        if self._ended_in_step:
            for span in self._ended_in_step:
                self._take_leave(span, folded)
            self._ended_in_step.clear()

    def _stall(self, left_out: Sequence[LeftOut], seconds: float) -> None:
        for request_id, reason in left_out:
            live = self._live.get(request_id)
            if live is not None:
                live.left_out_seconds += seconds
                stalled = live.span.stalled_by_reason
                stalled[reason.value] = stalled.get(reason.value, 0.0) + seconds

    def _ttft_parts(self, live: _Live) -> TtftParts:
        span = live.span
        first_token_time = span.first_token_time
        assert first_token_time is not None and span.first_scheduled_time is not None
        preempted = span.preempted_seconds(until=first_token_time)
        prefill = first_token_time - span.first_scheduled_time - preempted
        computed = min(prefill, live.computed(self._busy_seconds))
        return TtftParts(
            intake=span.accepted_time - span.arrival_time,
            queue=span.queue_by_reason,
            prefill=computed,
            interleaved=prefill - computed,
            preempted=preempted,
        )


def spans_of(events: Iterable[Event]) -> Iterator[RequestSpan]:
    """Every request of a log: the finished in order of finishing, then the unfinished."""
    fold = SpanFold()
    for event in events:
        yield from fold.feed(event).finished
    yield from fold.live()
