"""A log as a load that can be simulated: who asked when for what, what the engine ran with, and what came of it.

Times are from when the engine had a request in full to when a step gave its tokens. A request that was aborted live has
no latency, neither in the log nor in a simulation of it, but takes its place in both: its length is what it came to.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from evenflow.core.events import Arrived, ConfigChanged, Event, Finished
from evenflow.observe.fold import spans_of
from evenflow.observe.lives import distinct_lives
from evenflow.observe.spans import RequestSpan
from evenflow.replay.record import Record
from evenflow.replay.recorded import prefix_of
from evenflow.replay.request import PlannedRequest, Reason, TokenCounts
from evenflow.simulate.config import SimulationConfig
from evenflow.simulate.recorded import RecordedError, resolved_of


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """`records` are what the log saw of `plans`, one each, in order of arrival. `config` is what the engine started
    with; `start_time` is when the first of these requests came, by the log's clock; `num_with_wishes` counts requests
    with a priority or a deadline, which a simulation knows nothing of."""

    plans: tuple[PlannedRequest, ...]
    records: tuple[Record, ...]
    config: SimulationConfig
    start_time: float
    num_with_wishes: int

    def without_the_interrupted(self, simulated: Sequence[Record]) -> tuple[Record, ...]:
        """Records of a simulation of these plans; those that did not end by themselves live have no latency there."""
        return tuple(
            now if was.reason is None else replace(now, reason=was.reason, detail=was.detail)
            for now, was in zip(simulated, self.records, strict=True)
        )


def logged_run(events: Sequence[Event]) -> LoggedRun:
    """Raises RecordedError for a log that does not say enough."""
    events = list(distinct_lives(events))
    started = next((event for event in events if isinstance(event, ConfigChanged) and event.limits), None)
    if started is None:
        raise RecordedError("the log does not say what the engine started with; a whole log begins with that")
    resolved = resolved_of(started)
    spans = sorted(spans_of(events), key=lambda span: span.arrival_time)
    spans = [span for span in spans if span.finish_time is not None]
    if not spans:
        raise RecordedError("no request ended in this log: there is nothing to simulate")
    for span in spans:
        if max(span.num_prompt_tokens, span.num_output_tokens) > resolved.max_model_len:
            raise RecordedError(f"request {span.request_id!r} has more tokens than the context of its engine")
    start = spans[0].arrival_time
    contents = {event.request_id: event.content for event in events if isinstance(event, Finished)}
    plans = tuple(
        _plan(index, span, start, contents.get(span.request_id, ()), resolved.block_size)
        for index, span in enumerate(spans)
    )
    records = tuple(_record(span, plan, start) for span, plan in zip(spans, plans, strict=True))
    wishes = sum(
        isinstance(event, Arrived) and (event.priority != 0 or event.ttft_deadline is not None) for event in events
    )
    return LoggedRun(plans, records, SimulationConfig.of(resolved), start, wishes)


def _plan(index: int, span: RequestSpan, start: float, content: Sequence[int], block_size: int) -> PlannedRequest:
    return PlannedRequest(
        index=index,
        request_id=str(span.request_id),
        send_at=span.arrival_time - start,
        num_prompt_tokens=span.num_prompt_tokens,
        max_tokens=max(1, span.num_output_tokens),
        prefix=prefix_of(index, span.num_prompt_tokens, content, block_size),
        service_class=span.service_class,
        tenant=span.tenant,
    )


def _record(span: RequestSpan, plan: PlannedRequest, start: float) -> Record:
    times = tuple(time - start for time in span.token_times)
    ok = span.completed and len(times) > 0
    sent = span.arrival_time - start
    return Record(
        request_id=plan.request_id,
        intended=sent,
        allowed=sent,
        sent=sent,
        finished=span.finish_time - start if ok and span.finish_time is not None else None,
        num_prompt_tokens=plan.num_prompt_tokens,
        max_tokens=plan.max_tokens,
        num_output_tokens=len(times),
        server_prompt_tokens=plan.num_prompt_tokens,
        cached_tokens=span.num_cached_tokens,
        service_class=plan.service_class,
        tenant=plan.tenant,
        reason=None if ok else Reason.INTERRUPTED,
        detail=None if ok else "it did not end by itself",
        token_counts=TokenCounts.REPORTED,
        chunk_times=times,
        chunk_tokens=(1,) * len(times),
    )
