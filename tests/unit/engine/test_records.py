"""Whom a step fed, told with the same objects as long as it is the same."""

from itertools import pairwise

from evenflow.core.events import StepRecord
from simulated import Server, ask, simulate


def records() -> list[StepRecord]:
    load = [ask("a", 0.0, 20, 30), ask("b", 0.0, 20, 12), ask("c", 0.15, 40, 20)]
    return [event for event in simulate(Server(seats=3, budget=24), load) if isinstance(event, StepRecord)]


def test_records_of_a_batch_that_stays_share_their_tuples_and_others_do_not() -> None:
    same = [one.scheduled == two.scheduled for one, two in pairwise(records())]
    shared = [one.scheduled is two.scheduled for one, two in pairwise(records())]
    assert same == shared
    assert same.count(True) > 15
    assert same.count(False) >= 4, "somebody came, was fed in pieces, and left"
    for one, two in pairwise(records()):
        assert (one.emitted == two.emitted) is (one.emitted is two.emitted)


def test_a_record_says_whom_its_own_step_fed() -> None:
    for record in records():
        assert len(record.scheduled) == record.num_scheduled
        assert sum(num for _, num in record.scheduled) == record.prefill_tokens + record.decode_tokens
        assert {request_id for request_id, _ in record.scheduled} >= set(record.emitted)
