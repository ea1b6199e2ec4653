"""Waiting by reason, for queues told by hand."""

from evenflow.core.plan import Door, WaitReason
from evenflow.core.request import RequestId
from evenflow.observe.waits import WaitFold

A, B, C = RequestId("a"), RequestId("b"), RequestId("c")


def door(flow: str, reason: WaitReason) -> Door:
    return Door(flow, A, reason)


def test_each_flow_waits_for_the_reason_of_its_own_door() -> None:
    waits = WaitFold()
    waits.join(A, "one", 0.0)
    waits.join(B, "two", 0.0)
    waits.decide(1.0, [door("one", WaitReason.KV), door("two", WaitReason.QUOTA)])
    assert waits.leave(A, 3.0) == {"iteration": 1.0, "kv": 2.0}
    assert waits.leave(B, 4.0) == {"iteration": 1.0, "quota": 3.0}


def test_a_newcomer_does_not_inherit_what_the_flow_waited_before() -> None:
    waits = WaitFold()
    waits.join(A, "one", 0.0)
    waits.decide(0.0, [door("one", WaitReason.KV)])
    waits.join(B, "one", 5.0)
    waits.decide(6.0, [door("one", WaitReason.BUDGET)])
    assert waits.leave(B, 8.0) == {"iteration": 1.0, "budget": 2.0}
    assert waits.leave(A, 8.0) == {"kv": 6.0, "budget": 2.0}


def test_whoever_is_admitted_by_the_first_decision_waited_for_the_iteration_only() -> None:
    waits = WaitFold()
    waits.join(A, "one", 1.0)
    assert waits.leave(A, 3.5) == {"iteration": 2.5}
    waits.join(A, "one", 4.0)
    assert waits.leave(A, 4.0) == {}
    assert waits.num_waiting == 0


def test_a_request_that_comes_while_a_step_runs_is_the_next_steps_business() -> None:
    waits = WaitFold()
    waits.join(A, "one", 2.0)
    waits.decide(1.0, [])  # told after A came, but started before
    waits.decide(3.0, [door("one", WaitReason.KV)])
    assert waits.leave(A, 4.0) == {"iteration": 1.0, "kv": 1.0}


def test_the_sum_over_all_requests_runs_up_to_the_last_decision_while_they_wait() -> None:
    waits = WaitFold()
    for request_id in (A, B, C):
        waits.join(request_id, "one", 0.0)
    waits.decide(0.0, [door("one", WaitReason.KV)])
    assert waits.seconds["kv"] == 0.0
    waits.decide(2.0, [door("one", WaitReason.BUDGET)])
    assert waits.seconds["kv"] == 6.0
    waits.leave(C, 3.0)
    assert waits.seconds["budget"] == 1.0
    waits.decide(4.0, [door("one", WaitReason.KV)])
    assert waits.seconds["budget"] == 5.0


def test_a_flow_that_no_door_names_waits_unexplained() -> None:
    waits = WaitFold()
    waits.join(A, "one", 0.0)
    waits.decide(0.0, [])
    assert waits.leave(A, 2.0) == {"unexplained": 2.0}


def test_the_nearest_door_counts() -> None:
    waits = WaitFold()
    for request_id, flow in ((A, "one/x"), (B, "one/y"), (C, "two")):
        waits.join(request_id, flow, 0.0)
    waits.decide(0.0, [door("one/x", WaitReason.KV), door("one", WaitReason.FAIRNESS), door("all", WaitReason.BUDGET)])
    assert waits.leave(A, 1.0) == {"kv": 1.0}
    assert waits.leave(B, 1.0) == {"fairness": 1.0}
    assert waits.leave(C, 1.0) == {"budget": 1.0}


def test_a_wait_that_moves_to_another_flow_keeps_what_it_was() -> None:
    waits = WaitFold()
    waits.join(A, "one", 0.0)
    waits.decide(1.0, [door("one", WaitReason.KV)])
    waits.move(A, "two", 4.0)
    assert waits.num_waiting == 1
    waits.decide(4.5, [door("two", WaitReason.KV)])
    waits.decide(6.5, [door("two", WaitReason.BUDGET)])
    assert waits.leave(A, 7.0) == {"iteration": 1.5, "kv": 5.0, "budget": 0.5}
    assert waits.seconds["kv"] == 5.0
