"""Folds against plain arithmetic on the whole list of events, over random workloads.

The reference here looks at everything at once and knows no trick; the folds see one event at a time.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from hypothesis import given

from evenflow.core.events import Arrived, Event, Finished, FirstToken, Preempted, Scheduled, StepRecord
from evenflow.core.plan import EVERYBODY, lane_of
from evenflow.core.request import FinishReason, RequestId
from evenflow.observe.fold import SpanFold, spans_of
from evenflow.observe.metrics import Metrics
from evenflow.observe.spans import RequestSpan
from evenflow.observe.waits import ITERATION, UNEXPLAINED
from recording import Batches, flat, record, recorded
from strategies import Scenario, Seeded, composed, on_a_tight_budget, scenario, scenarios

SEEDS = 100


@dataclass(frozen=True, slots=True)
class Life:
    """All events of one request, and all steps."""

    arrived: Arrived
    seats: list[Scheduled]
    preemptions: list[Preempted]
    first_token: FirstToken | None
    finished: Finished
    steps: list[StepRecord]

    @property
    def id(self) -> RequestId:
        return self.arrived.request_id

    @property
    def waits(self) -> list[tuple[float, float]]:
        """Every stay in the queue; the first is the wait for the first seat."""
        starts = [self.arrived.accepted_time, *(event.time for event in self.preemptions)]
        ends = [event.time for event in self.seats]
        if len(ends) < len(starts):
            ends.append(self.finished.time)
        return list(zip(starts, ends, strict=True))

    def reasons(self, start: float, end: float) -> dict[str, float]:
        """What the doors said during one stay in the queue."""
        decisions = [step for step in self.steps if start <= step.start < end]
        seconds = defaultdict(float, {ITERATION: (decisions[0].start if decisions else end) - start})
        starts = [step.start for step in decisions]
        for step, until in zip(decisions, [*starts[1:], end], strict=False):
            doors = {door.flow: door.reason.value for door in step.doors}
            names = (self.arrived.flow, lane_of(self.arrived.flow), EVERYBODY)
            reason = next((doors[name] for name in names if name in doors), UNEXPLAINED)
            seconds[reason] += until - step.start
        return {reason: total for reason, total in seconds.items() if total > 0}

    @property
    def token_times(self) -> list[float]:
        return [step.end for step in self.steps if self.id in step.emitted]

    @property
    def prefill_seconds(self) -> float:
        """Steps that fed it, up to the one that gave the first token."""
        assert self.first_token is not None
        fed = [step for step in self.steps if any(name == self.id for name, _ in step.scheduled)]
        return sum(step.end - step.start for step in fed if step.end <= self.first_token.time)

    @property
    def stalled(self) -> dict[str, float]:
        seconds: defaultdict[str, float] = defaultdict(float)
        for step in self.steps:
            for name, reason in step.left_out:
                if name == self.id:
                    seconds[reason.value] += step.end - step.start
        return dict(seconds)


def lives(events: list[Event]) -> list[Life]:
    steps = [event for event in events if isinstance(event, StepRecord)]
    found = []
    for arrived in events:
        if isinstance(arrived, Arrived):
            own = [event for event in events if getattr(event, "request_id", None) == arrived.request_id]
            (finished,) = [event for event in own if isinstance(event, Finished)]
            found.append(
                Life(
                    arrived,
                    [event for event in own if isinstance(event, Scheduled)],
                    [event for event in own if isinstance(event, Preempted)],
                    next((event for event in own if isinstance(event, FirstToken)), None),
                    finished,
                    steps,
                )
            )
    return found


def merged(parts: list[dict[str, float]]) -> dict[str, float]:
    total: defaultdict[str, float] = defaultdict(float)
    for part in parts:
        for reason, seconds in part.items():
            total[reason] += seconds
    return dict(total)


def assert_span_is(span: RequestSpan, life: Life) -> None:
    waits = life.waits
    assert span.arrival_time == life.arrived.time
    assert span.finish_time == life.finished.time
    assert span.finish_reason == life.finished.reason
    assert span.first_scheduled_time == (life.seats[0].time if life.seats else None)
    assert span.queue_seconds == waits[0][1] - waits[0][0]
    assert span.queue_by_reason == life.reasons(*waits[0])
    assert sum(span.queue_by_reason.values()) == span.queue_seconds
    assert span.preempted_times == waits[1:]
    assert span.preempted_by_reason == merged([life.reasons(*wait) for wait in waits[1:]])
    assert span.stalled_by_reason == life.stalled
    assert list(span.token_times) == life.token_times
    assert span.itl_seconds == [later - earlier for earlier, later in pairwise(life.token_times)]
    assert span.num_output_tokens == len(life.token_times)
    assert span.num_preemptions == len(life.preemptions)
    assert span.num_swapped_in_tokens == sum(event.swapped_in_tokens for event in life.seats)
    if life.first_token is None:
        assert span.ttft_parts is None
        assert span.ttft_seconds is None
        return
    parts = span.ttft_parts
    assert parts is not None
    assert parts.prefill == life.prefill_seconds
    assert parts.preempted == sum(end - start for start, end in waits[1:] if end <= life.first_token.time)
    assert parts.total == span.ttft_seconds == life.first_token.time - life.arrived.time
    assert min(parts.intake, parts.prefill, parts.interleaved, parts.preempted, *parts.queue.values(), 0.0) == 0.0


def check(batches: Batches) -> list[Life]:
    events = flat(batches)
    expected = {life.id: life for life in lives(events)}
    spans = list(spans_of(events))
    assert [span.request_id for span in spans] == [e.request_id for e in events if isinstance(e, Finished)]
    for span in spans:
        assert_span_is(span, expected[span.request_id])
    return list(expected.values())


@given(scenarios())
def test_spans_are_what_plain_arithmetic_on_all_events_says(scenario: Scenario) -> None:
    check(record(scenario))


def test_every_second_of_waiting_has_a_reason() -> None:
    unexplained = [
        (seed, life.id)
        for seed in range(SEEDS)
        for life in lives(flat(recorded(seed)))
        if any(UNEXPLAINED in life.reasons(*wait) for wait in life.waits)
    ]
    assert unexplained == []


def test_the_random_workloads_reach_everything_that_a_span_tells() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        drawn = scenario(Seeded(Random(seed)))
        for life in check(record(on_a_tight_budget(drawn) if seed % 10 == 0 else drawn)):
            first_token_time = life.first_token.time if life.first_token is not None else float("inf")
            seen["preempted before the first token"] += any(p.time < first_token_time for p in life.preemptions)
            seen["preempted later"] += any(p.time >= first_token_time for p in life.preemptions)
            seen["swapped"] += any(event.swapped_in_tokens for event in life.seats)
            seen["left out while running"] += bool(life.stalled)
            seen["aborted"] += life.finished.reason is FinishReason.ABORT
            seen["aborted in the queue"] += not life.seats
            seen["interrupted tokens"] += any(
                life.id in b.emitted
                and life.id not in c.emitted
                and life.id in {i for s in life.steps for i in s.emitted}
                for b, c in pairwise(life.steps)
            )
            for wait in life.waits:
                seen.update(life.reasons(*wait).keys())
    subjects = ["preempted before the first token", "preempted later", "swapped", "left out while running", "aborted"]
    subjects += ["aborted in the queue", "interrupted tokens", ITERATION, "budget", "max_num_seqs", "kv", "preemption"]
    assert [subject for subject in subjects if not seen[subject]] == []


@given(composed())
def test_every_second_of_waiting_has_a_reason_whatever_the_policy(scenario: Scenario) -> None:
    events = flat(record(scenario))
    waits = [life.reasons(*wait) for life in lives(events) for wait in life.waits]
    assert not any(UNEXPLAINED in reasons for reasons in waits)
    fold = SpanFold()
    for event in events:
        fold.feed(event)
    assert {reason: s for reason, s in fold.waits.seconds.items() if s} == merged(waits)


@given(scenarios())
def test_the_seconds_of_all_waits_are_the_waits_of_all_requests(scenario: Scenario) -> None:
    events = flat(record(scenario))
    fold = SpanFold()
    for event in events:
        fold.feed(event)
    waits = [life.reasons(*wait) for life in lives(events) for wait in life.waits]
    assert {reason: s for reason, s in fold.waits.seconds.items() if s} == merged(waits)
    assert (fold.num_waiting, fold.num_running) == (0, 0)


@given(scenarios())
def test_gaps_told_step_by_step_are_the_gaps_of_all_spans(scenario: Scenario) -> None:
    events = flat(record(scenario))
    fold = SpanFold()
    gaps: Counter[float] = Counter()
    for event in events:
        for seconds, count in fold.feed(event).token_gaps:
            gaps[seconds] += count
    assert gaps == Counter(gap for span in spans_of(events) for gap in span.itl_seconds)


@given(scenarios())
def test_gauges_follow_the_step_records_and_fall_to_zero(scenario: Scenario) -> None:
    metrics = Metrics("m")
    fold = SpanFold()
    for event in flat(record(scenario)):
        metrics.feed([event])
        fold.feed(event)
        if isinstance(event, StepRecord):
            assert (fold.num_running, fold.num_waiting) == (event.running, event.waiting)
            assert (fold.num_swapped > 0) == (event.host_blocks_used > 0)
    lines = metrics.render()[0].decode().splitlines()
    gauges = [line for line in lines if line.startswith(("vllm:num_requests", "vllm:kv_cache_usage", "vllm:cpu_cache"))]
    assert len(gauges) == 5
    assert all(line.endswith(" 0.0") for line in gauges)
