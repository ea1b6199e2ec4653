"""Latencies of hand-told runs, by the definitions of docs/reference/metrics.md."""

import pytest

from evenflow.core.events import Event, PolicyChanged
from evenflow.core.plan import WaitReason
from evenflow.core.request import FinishReason, RequestId
from evenflow.observe.fold import SpanFold, spans_of
from evenflow.observe.spans import RequestSpan, TtftParts
from story import alone, arrived, finished, first_token, preempted, scheduled, step, swapped


def span_of(events: list[Event], name: str = "a") -> RequestSpan:
    (span,) = [span for span in spans_of(events) if span.request_id == name]
    return span


def test_a_request_alone_has_the_latencies_that_its_times_say() -> None:
    span = span_of(list(alone()))
    assert span.ttft_seconds == 3.0
    assert span.e2e_seconds == 9.0
    assert span.itl_seconds == [2.0, 4.0]
    assert span.tpot_seconds == 3.0
    assert (span.queue_seconds, span.queue_by_reason) == (1.0, {"iteration": 1.0})
    assert (span.prefill_seconds, span.decode_seconds, span.inference_seconds) == (1.0, 6.0, 7.0)
    assert (span.num_prompt_tokens, span.num_output_tokens, span.num_cached_tokens) == (8, 3, 4)
    assert span.completed


def test_ttft_splits_into_intake_queue_prefill_and_what_others_ran_in_between() -> None:
    span = span_of(
        [
            arrived("b", 0.0),
            scheduled("b", 1, 0.0),
            first_token("b", 1, 1.0),
            step(1, 0.0, 1.0, emitted="b"),
            arrived("a", 0.5, accepted=1.0),
            step(2, 1.5, 3.0, emitted="b", door=WaitReason.KV, waiting=1),
            scheduled("a", 3, 3.5),
            step(3, 3.5, 4.0, emitted="b", fed="ba", running=2),
            step(4, 4.0, 6.0, emitted="b", left_out="a", running=2),
            first_token("a", 5, 9.0),
            step(5, 6.5, 9.0, emitted="ba", running=2),
        ]
    )
    assert span.ttft_parts == TtftParts(
        intake=0.5,
        queue={"iteration": 0.5, "kv": 2.0},
        prefill=3.0,  # steps 3 and 5
        interleaved=2.5,  # step 4, and the pause before step 5
        preempted=0.0,
    )
    assert span.ttft_parts.total == span.ttft_seconds == 8.5
    assert span.stalled_by_reason == {"budget": 2.0}


def test_time_back_in_the_queue_is_preempted_and_not_prefill_nor_decode() -> None:
    span = span_of(
        [
            arrived("a", 0.0),
            scheduled("a", 1, 0.0),
            step(1, 0.0, 1.0, fed="a"),
            preempted("a", 2, 1.0, lost=6),
            step(2, 1.0, 4.0, door=WaitReason.PREEMPTION, running=0, waiting=1),
            scheduled("a", 3, 4.0, cached=2, resumed=True),
            first_token("a", 3, 5.0),
            step(3, 4.0, 5.0, emitted="a"),
            preempted("a", 4, 5.0, lost=9),
            step(4, 5.0, 7.0, door=WaitReason.KV, running=0, waiting=1),
            scheduled("a", 5, 7.0, cached=9, resumed=True),
            finished("a", 5, 8.0, outputs=2),
            step(5, 7.0, 8.0, emitted="a", running=0),
        ]
    )
    assert span.ttft_parts == TtftParts(intake=0.0, queue={}, prefill=2.0, interleaved=0.0, preempted=3.0)
    assert (span.prefill_seconds, span.decode_seconds, span.inference_seconds) == (2.0, 1.0, 3.0)
    assert span.preempted_by_reason == {"preemption": 3.0, "kv": 2.0}
    assert span.preempted_seconds() == 5.0
    assert (span.num_preemptions, span.num_lost_tokens, span.num_recomputed_tokens) == (2, 15, 4)


def test_what_comes_back_from_host_memory_is_not_computed_again() -> None:
    span = span_of(
        [
            arrived("a", 0.0),
            scheduled("a", 1, 0.0),
            step(1, 0.0, 1.0, fed="a"),
            swapped("a", 2, 1.0, kept=6),
            step(2, 1.0, 4.0, door=WaitReason.PREEMPTION, running=0, waiting=1),
            scheduled("a", 3, 4.0, cached=2, resumed=True, swapped_in=4),
            first_token("a", 3, 5.0),
            finished("a", 3, 5.0),
            step(3, 4.0, 5.0, emitted="a", running=0),
        ]
    )
    assert (span.num_preemptions, span.num_lost_tokens, span.num_recomputed_tokens) == (1, 0, 0)
    assert span.num_swapped_in_tokens == 4
    assert span.preempted_seconds() == 3.0


def test_one_token_has_no_tpot_and_no_gap() -> None:
    span = span_of(
        [
            arrived("a", 0.0),
            scheduled("a", 1, 0.0),
            first_token("a", 1, 1.0),
            finished("a", 1, 1.0),
            step(1, 0.0, 1.0, emitted="a", running=0),
        ]
    )
    assert span.tpot_seconds is None
    assert span.itl_seconds == []
    assert list(span.token_times) == [1.0]


def test_two_tokens_of_one_step_share_the_gap_before_them() -> None:
    events: list[Event] = [
        arrived("a", 0.0),
        scheduled("a", 1, 0.0),
        first_token("a", 1, 1.0),
        step(1, 0.0, 1.0, emitted="a"),
        step(2, 1.0, 4.0, emitted="aa"),
        step(3, 4.0, 5.0, emitted="a"),
    ]
    fold = SpanFold()
    gaps = [gap for event in events for gap in fold.feed(event).token_gaps]
    assert gaps == [(1.5, 2), (1.0, 1)]
    assert span_of(events).itl_seconds == [1.5, 1.5, 1.0]


def test_a_request_aborted_in_the_queue_waited_until_its_end() -> None:
    span = span_of(
        [
            arrived("a", 0.0, accepted=1.0),
            step(1, 2.0, 3.0, door=WaitReason.BUDGET, waiting=1),
            finished("a", 1, 5.0, reason=FinishReason.ABORT, outputs=0),
        ]
    )
    assert span.queue_by_reason == {"iteration": 1.0, "budget": 3.0}
    assert span.queue_seconds == 4.0
    assert span.ttft_seconds is None
    assert span.prefill_seconds is None
    assert span.decode_seconds is None
    assert not span.completed


def test_an_unfinished_request_with_a_token_has_a_ttft() -> None:
    span = span_of(list(alone())[:5])
    assert span.finish_time is None
    assert span.ttft_seconds == 3.0
    assert list(span.token_times) == [3.0, 5.0]


def test_a_request_is_finished_only_when_its_last_step_is_told() -> None:
    fold = SpanFold()
    *before, last_step = alone()
    assert [span for event in before for span in fold.feed(event).finished] == []
    (span,) = fold.feed(last_step).finished
    assert list(span.token_times) == [3.0, 5.0, 9.0]
    assert list(fold.live()) == []


def test_a_request_that_failed_is_finished_although_its_step_never_ends() -> None:
    fold = SpanFold()
    for event in list(alone())[:5]:
        fold.feed(event)
    (span,) = fold.feed(finished("a", 3, 6.0, reason=FinishReason.ERROR, outputs=2)).finished
    assert list(span.token_times) == [3.0, 5.0]
    assert (fold.num_running, fold.num_waiting) == (0, 0)


def test_a_log_may_begin_in_the_middle_of_requests() -> None:
    fold = SpanFold()
    for event in list(alone())[4:]:
        assert not fold.feed(event).finished
    assert list(fold.live()) == []


def test_an_id_may_come_again_after_its_request_ended() -> None:
    first, second = spans_of([*alone(), arrived("a", 20.0), *[step(9, 21.0, 22.0, door=WaitReason.KV, waiting=1)]])
    assert first.e2e_seconds == 9.0
    assert not second.token_times


def test_tokenising_that_the_front_reports_comes_out_of_the_intake() -> None:
    parts = TtftParts(intake=0.5, queue={"kv": 1.0}, prefill=2.0, interleaved=0.25, preempted=0.0)
    with_front = parts.with_front(tokenise_seconds=0.125, delivery_seconds=0.25)
    assert (with_front.tokenise, with_front.intake, with_front.delivery) == (0.125, 0.375, 0.25)
    assert with_front.total == parts.total + 0.25


@pytest.mark.parametrize("name", ["a", "b"])
def test_gaps_are_counted_for_a_batch_that_changes(name: str) -> None:
    events: list[Event] = []
    for index, who in enumerate("ab"):
        events += [arrived(who, 0.0), scheduled(who, 1, 0.0), first_token(who, index + 1, index + 1.0)]
    batches = ["a", "ab", "ab", "b", "ba", "", "ab"]
    events += [step(number + 1, number, number + 1.0, emitted=batch) for number, batch in enumerate(batches)]
    fold = SpanFold()
    gaps = [gap for event in events for gap in fold.feed(event).token_gaps]
    expected = {"a": [1.0, 2.0, 3.0, 5.0, 7.0], "b": [2.0, 3.0, 4.0, 5.0, 7.0]}
    assert list(span_of(events, name).token_times) == expected[name]
    assert gaps == [(1.0, 1), (1.0, 2), (1.0, 1), (1.0, 1), (2.0, 1), (2.0, 2)]
    assert RequestId(name) in {span.request_id for span in fold.live()}


def test_a_change_of_policy_moves_those_who_live_to_other_flows() -> None:
    """`a` waits and goes on waiting elsewhere; `b` runs, and would wait elsewhere; `c` is not known here."""
    fold = SpanFold()
    moved = tuple((RequestId(name), f"default/{name}") for name in "abc")
    events: list[Event] = [
        arrived("a", 0.0),
        arrived("b", 0.0),
        scheduled("b", 1, 0.0),
        step(1, 0.0, 2.0, emitted="b", door=WaitReason.KV),
        PolicyChanged(2.0, 1, (), moved),
        step(2, 2.0, 3.0, emitted="b", door=WaitReason.BUDGET),
    ]
    for event in events:
        fold.feed(event)
    assert {span.request_id: span.flow for span in fold.live()} == {"a": "default/a", "b": "default/b"}
    fold.feed(scheduled("a", 3, 3.0))
    (span,) = (span for span in fold.live() if span.request_id == "a")
    assert span.queue_by_reason == {"kv": 2.0, "budget": 1.0}
