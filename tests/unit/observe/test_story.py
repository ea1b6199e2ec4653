"""The life of one request, told by hand and for recorded random runs, where it must agree with the spans."""

from math import isclose

import pytest

from evenflow.core.events import Event, Rejected
from evenflow.core.plan import WaitReason
from evenflow.core.request import FinishReason, RequestId
from evenflow.observe.fold import spans_of
from evenflow.observe.story import Story, story_of
from recording import busy_runs, flat
from story import arrived, finished, first_token, preempted, scheduled, step

A = RequestId("a")


def told(*events: Event) -> Story:
    story = story_of(events, A)
    assert story is not None
    return story


def lines(story: Story) -> list[tuple[str, float, float, str | None]]:
    return [(phase.kind, phase.start, phase.end, phase.reason) for phase in story.phases]


def test_a_simple_life_is_intake_queue_prefill_and_one_line_of_decode() -> None:
    story = told(
        arrived("a", 1.0, accepted=1.5),
        scheduled("a", 1, 2.0),
        first_token("a", 1, 3.0),
        step(1, 2.0, 3.0, emitted="a"),
        step(2, 3.5, 4.0, emitted="a"),
        finished("a", 3, 5.0, outputs=3),
        step(3, 4.0, 5.0, emitted="a", running=0),
    )
    assert lines(story) == [
        ("intake", 1.0, 1.5, None),
        ("queue", 1.5, 2.0, "iteration"),
        ("prefill", 2.0, 3.0, None),
        ("decode", 3.0, 5.0, None),
    ]
    decode = story.phases[-1]
    assert (decode.first_step, decode.last_step, decode.num_steps, decode.num_tokens) == (2, 3, 2, 2)
    assert decode.between_seconds == 0.5
    assert story.complete
    assert sum(story.seconds_by_kind().values()) == 4.0


def test_a_wait_names_its_reason_and_whom_it_waits_behind() -> None:
    story = told(
        arrived("z", 0.0),
        arrived("a", 0.0),
        step(1, 0.0, 1.0, fed="x", door=WaitReason.KV, head="z"),
        step(2, 1.0, 2.0, fed="x", door=WaitReason.MAX_NUM_SEQS, head="a"),
        scheduled("a", 3, 2.0),
        step(3, 2.0, 3.0, fed="a"),
    )
    kv, seats, prefill = story.phases
    assert (kv.reason, kv.behind, kv.start, kv.end) == ("kv", "z", 0.0, 1.0)
    assert (seats.reason, seats.behind, seats.start, seats.end) == ("max_num_seqs", None, 1.0, 2.0)
    assert prefill.kind == "prefill"
    assert story.wait_by_reason() == {"kv": 1.0, "max_num_seqs": 1.0}


def test_a_preemption_names_for_whom_and_its_time_in_the_queue() -> None:
    story = told(
        arrived("a", 0.0),
        scheduled("a", 1, 0.0),
        step(1, 0.0, 1.0, fed="a"),
        preempted("a", 2, 1.5),
        step(2, 1.5, 2.0, fed="x", door=WaitReason.PREEMPTION, head="a"),
        scheduled("a", 3, 2.0, resumed=True),
        step(3, 2.0, 3.0, fed="a"),
        finished("a", 3, 3.5, reason=FinishReason.ABORT),
    )
    assert lines(story) == [
        ("prefill", 0.0, 1.5, None),
        ("preempted", 1.5, 2.0, "preemption"),
        ("prefill", 2.0, 3.5, None),
    ]
    assert story.preempted_for == ["other"]
    assert story.seconds_by_kind() == {"prefill": 2.0, "between": 1.0, "preempted": 0.5}


def test_a_running_request_that_a_step_left_out_stalled_for_a_reason() -> None:
    story = told(
        arrived("a", 0.0),
        scheduled("a", 1, 0.0),
        step(1, 0.0, 1.0, fed="a"),
        step(2, 1.0, 2.0, fed="x", left_out="a"),
    )
    stalled = story.phases[-1]
    assert (stalled.kind, stalled.seconds) == ("stalled", 1.0)
    assert stalled.reason is not None


def test_a_wait_for_tokens_names_who_got_them() -> None:
    story = told(
        arrived("a", 0.0),
        step(1, 0.0, 1.0, fed="xy", door=WaitReason.BUDGET, head="a"),
        step(2, 1.0, 2.0, fed="x", door=WaitReason.BUDGET, head="a"),
        scheduled("a", 3, 2.0),
        step(3, 2.0, 3.0, fed="a"),
        step(4, 3.0, 4.0, fed="z", left_out="a"),
        step(5, 4.0, 5.0, fed="zy", left_out="a"),
    )
    queue, prefill, stalled = story.phases
    assert (queue.reason, queue.behind, queue.spent_on) == ("budget", None, {"x": 2, "y": 1})
    assert (stalled.reason, stalled.spent_on) == ("budget", {"z": 2, "y": 1})
    assert not prefill.spent_on


def test_a_wait_for_a_seat_names_nobodys_tokens() -> None:
    story = told(arrived("a", 0.0), step(1, 0.0, 1.0, fed="x", door=WaitReason.MAX_NUM_SEQS, head="a"))
    assert not story.phases[-1].spent_on


def test_who_shared_its_steps_is_counted() -> None:
    story = told(
        arrived("a", 0.0),
        scheduled("a", 1, 0.0),
        step(1, 0.0, 1.0, fed="ab"),
        step(2, 1.0, 2.0, fed="abc"),
    )
    assert story.phases[-1].sharers == {"b": 2, "c": 1}
    assert story.phases[-1].batch == 3


def test_of_an_id_that_is_used_again_the_last_life_is_told() -> None:
    def life(at: float, first: int) -> list[Event]:
        return [
            arrived("a", at),
            scheduled("a", first, at),
            first_token("a", first, at + 1.0),
            step(first, at, at + 1.0, emitted="a"),
            finished("a", first + 1, at + 2.0, outputs=2),
            step(first + 1, at + 1.0, at + 2.0, emitted="a", running=0),
        ]

    once, twice = told(*life(0.0, 1)), told(*life(0.0, 1), *life(10.0, 3))
    assert (once.num_earlier, twice.num_earlier) == (0, 1)
    assert lines(twice) == [("prefill", 10.0, 11.0, None), ("decode", 11.0, 12.0, None)]
    assert twice.complete


def test_one_that_is_refused_because_of_its_id_is_not_the_one_that_has_it() -> None:
    story = told(arrived("a", 0.0), Rejected(1.0, A, "the id is in use"), scheduled("a", 1, 2.0))
    assert story.rejected_because is None
    assert lines(story) == [("queue", 0.0, 2.0, "iteration")]


def test_a_request_that_nobody_saw_has_no_story() -> None:
    assert story_of([arrived("b", 0.0)], A) is None


def test_a_log_that_begins_in_the_middle_of_a_life_tells_the_rest() -> None:
    story = told(first_token("a", 7, 1.0), step(7, 0.5, 1.0, fed="a"), step(8, 1.0, 2.0, fed="a"))
    assert not story.complete
    assert story.phases[-1].end == 2.0


@pytest.mark.parametrize("index", range(4))
def test_phases_tile_every_life_and_agree_with_the_spans(index: int) -> None:
    events = flat(busy_runs(4)[index])
    for span in spans_of(events):
        story = story_of(events, span.request_id)
        assert story is not None
        assert story.finish_time == span.finish_time
        ends = [story.arrival_time, *(phase.end for phase in story.phases)]
        assert [phase.start for phase in story.phases] == ends[:-1], "a hole or an overlap"
        if span.finish_time is not None:
            assert ends[-1] == span.finish_time
        waits = dict.fromkeys((*span.queue_by_reason, *span.preempted_by_reason, *span.stalled_by_reason), 0.0)
        for by_reason in (span.queue_by_reason, span.preempted_by_reason, span.stalled_by_reason):
            for reason, seconds in by_reason.items():
                waits[reason] += seconds
        if span.finish_time is not None:
            assert story.wait_by_reason() == pytest.approx({k: v for k, v in waits.items() if v})
        assert "unexplained" not in story.wait_by_reason()
        fed = sum(phase.num_tokens for phase in story.phases)
        assert fed > 0 or not span.token_times
        assert isclose(sum(story.seconds_by_kind().values()), ends[-1] - ends[0], abs_tol=1e-9)
