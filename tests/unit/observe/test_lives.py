"""An id that is used again is another request."""

from evenflow.core.events import Arrived, Event, PolicyChanged, Rejected
from evenflow.core.plan import WaitReason
from evenflow.core.request import RequestId
from evenflow.observe.fold import spans_of
from evenflow.observe.lives import distinct_lives
from recording import busy_runs, flat
from story import arrived, finished, first_token, preempted, scheduled, step

A, B, AGAIN = RequestId("a"), RequestId("b"), RequestId("a#2")


def life(first: int) -> list[Event]:
    """Of "a", in which every event that can name a request names it."""
    at = float(first)
    return [
        arrived("a", at),
        scheduled("a", first, at),
        first_token("a", first, at + 0.5),
        step(first, at, at + 0.5, emitted="a", left_out="b"),
        preempted("b", first + 1, at + 0.6)._replace(for_request=A),
        step(first + 1, at + 0.5, at + 1.0, fed="b", left_out="a", door=WaitReason.KV, head="a"),
        PolicyChanged(at + 1.0, first + 1, (), ((A, "x"), (B, "y"))),
        finished("a", first + 2, at + 1.5),
        step(first + 2, at + 1.0, at + 1.5, emitted="a"),
    ]


def test_a_log_in_which_no_id_is_used_again_comes_through_as_it_is() -> None:
    events = flat(busy_runs(1)[0])
    assert list(distinct_lives(events)) == events


def test_whatever_names_a_second_life_names_it_by_its_own_name() -> None:
    events = [arrived("b", 0.0), *life(1), *life(11)]
    seen = list(distinct_lives(events))
    first, second = seen[: 1 + len(life(1))], seen[1 + len(life(1)) :]
    assert first == events[: len(first)]
    assert repr(second).replace("'a#2'", "'a'") == repr(life(11))
    assert "'a'" not in repr(second)
    assert {span.request_id for span in spans_of(seen)} == {A, AGAIN, B}


def test_each_further_life_has_a_name_of_its_own() -> None:
    seen = list(distinct_lives([*life(1), *life(11), *life(21)]))
    assert [event.request_id for event in seen if isinstance(event, Arrived)] == ["a", "a#2", "a#3"]


def test_one_that_was_refused_had_no_life() -> None:
    events: list[Event] = [Rejected(0.0, A, "no"), *life(1)]
    assert list(distinct_lives(events)) == events
