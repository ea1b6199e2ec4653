"""Another policy between two steps: as a whole or not at all, and nobody loses anything by it."""

from dataclasses import replace

import pytest

from evenflow.core.errors import PolicyError
from evenflow.core.events import Event, PolicyChanged, Preempted, Scheduled
from evenflow.core.plan import Door, WaitReason
from evenflow.core.policy.presets import PRESETS, policy_of
from evenflow.core.policy.spec import ClassSpec, PolicySpec
from evenflow.core.request import FinishReason, RequestId
from world import World, assert_each_said_what_it_says_alone

RANKED = (ClassSpec("interactive", rank=0), ClassSpec("default", rank=1), ClassSpec("batch", rank=2))


def change(world: World, spec: PolicySpec) -> None:
    world.change(spec, at=world.clock.now())


def test_a_policy_that_cannot_be_built_changes_nothing() -> None:
    world = World(seqs=1).arrive("a", prompt=3).arrive("b", prompt=3).steps(1)
    before, policy = list(world.events), world.scheduler.policy
    with pytest.raises(PolicyError, match="order"):
        world.scheduler.reconfigure(PolicySpec(order="fifo"), now=1.0)
    assert world.events == before
    assert world.scheduler.policy is policy
    world.scheduler.check()
    world.run()


def test_a_policy_that_leaves_no_room_for_a_live_request_is_refused() -> None:
    world = World(blocks=8, block_size=4).arrive("big", prompt=20, max_tokens=5, service_class="batch").steps(1)
    tight = PolicySpec(classes=(ClassSpec("default"), ClassSpec("batch", max_kv=0.5)))
    with pytest.raises(PolicyError) as refused:
        world.scheduler.reconfigure(tight, now=1.0)
    (problem,) = refused.value.problems
    assert problem.field == "classes.batch.max_kv"
    assert problem.nearest == "0.75 for it"
    enough = replace(tight, classes=(ClassSpec("default"), ClassSpec("batch", max_kv=0.75)))
    world.change(enough, at=1).run()
    assert world.reasons["big"] is FinishReason.LENGTH


def test_the_order_of_those_who_wait_changes_at_once() -> None:
    world = World(seqs=1).arrive("runs", prompt=3, max_tokens=3)
    world.arrive("low", prompt=3, max_tokens=1, priority=2).arrive("high", prompt=3, max_tokens=1, priority=1)
    world.steps(1)
    world.change(PolicySpec(order="priority"), at=1).run()
    assert [event.request_id for event in world.of(Scheduled)] == ["runs", "high", "low"]


def test_those_who_run_go_on_running_under_the_new_order() -> None:
    world = (
        World(seqs=3).arrive("a", prompt=3, priority=2, max_tokens=5).arrive("b", prompt=3, priority=1, max_tokens=5)
    )
    world.steps(1)
    change(world, PolicySpec(order="priority"))
    world.steps(1)
    assert [state.request.id for state in world.scheduler.running()] == ["b", "a"]
    world.run()
    assert world.of(Preempted) == []


def test_fewer_seats_are_reached_as_requests_end() -> None:
    world = World(seqs=4)
    for number in range(4):
        world.arrive(f"r{number}", prompt=2, max_tokens=2 + number)
    world.arrive("next", prompt=2, max_tokens=2).steps(1)
    world.change(PolicySpec(max_num_seqs=2), at=1).run()
    assert world.of(Preempted) == []
    (start,) = (e.time for e in world.of(Scheduled) if e.request_id == "next")
    assert start == 4.0  # r0 to r2 have ended


def test_a_smaller_budget_holds_from_the_next_step_on() -> None:
    world = World(budget=8).arrive("a", prompt=20, max_tokens=1).steps(1)
    world.change(PolicySpec(max_num_batched_tokens=3), at=1).steps(2)
    assert world.chunk_sizes("a") == [8, 3, 3]


def test_a_class_that_is_taken_away_leaves_its_requests_to_the_default_one() -> None:
    world = World(seqs=1, policy=PolicySpec(classes=RANKED)).arrive("a", prompt=2, max_tokens=3, service_class="batch")
    world.arrive("b", prompt=2, service_class="batch").steps(1)
    world.change(PolicySpec(classes=(ClassSpec("default"),)), at=1).steps(1)
    assert world.plans[-1].doors == (Door("all", RequestId("b"), WaitReason.MAX_NUM_SEQS),)
    assert world.run().reasons["b"] is FinishReason.LENGTH


def test_the_log_says_what_changed_and_who_waits_elsewhere_now() -> None:
    world = World(seqs=1).arrive("a", prompt=3, tenant="x").arrive("b", prompt=3, tenant="y").steps(1)
    world.scheduler.reconfigure(PolicySpec(fairness="vtc", max_backfill=2), now=1.5)
    (event,) = world.of(PolicyChanged)
    assert (event.time, event.step) == (1.5, 1)
    assert event.moved == ((RequestId("a"), "default/x"), (RequestId("b"), "default/y"))
    assert dict(event.settings)["max_backfill"] == "2"
    assert len(event.settings) > 30
    world.scheduler.reconfigure(PolicySpec(fairness="vtc"), now=1.5)
    assert world.of(PolicyChanged)[-1].moved == ()


def test_service_is_remembered_from_one_fair_policy_to_the_next() -> None:
    world = World(seqs=1, policy=PolicySpec(fairness="vtc")).arrive("a0", prompt=9, max_tokens=3, tenant="a")
    world.arrive("a1", prompt=2, max_tokens=1, tenant="a").arrive("b0", prompt=2, max_tokens=1, tenant="b").steps(1)
    world.change(PolicySpec(fairness="vtc", max_backfill=1), at=1).run()
    assert [event.request_id for event in world.of(Scheduled)] == ["a0", "b0", "a1"]


def test_a_request_admitted_before_there_was_a_counter_is_charged_from_then_on() -> None:
    world = World(seqs=1).arrive("a0", prompt=2, max_tokens=9, tenant="a").steps(1)
    world.change(PolicySpec(fairness="vtc"), at=1).steps(1)
    world.arrive("a1", prompt=2, max_tokens=1, tenant="a", at=2).arrive("b0", prompt=2, max_tokens=1, tenant="b", at=2)
    world.run()
    assert [event.request_id for event in world.of(Scheduled)] == ["a0", "b0", "a1"]


def test_what_was_learned_outlives_the_policy() -> None:
    world = World(policy=PolicySpec())
    for number in range(10):
        world.arrive(f"r{number}", prompt=2, max_tokens=3, at=number)
    world.run()
    change(world, PolicySpec(reserve="expected"))
    world.arrive("new", prompt=2, max_tokens=60, at=world.clock.now()).steps(1)
    assert world.blocks - world.scheduler.kv.num_free_blocks == 1  # for 4 tokens, and not for 61


@pytest.mark.parametrize("before", PRESETS)
@pytest.mark.parametrize("after", PRESETS)
def test_any_preset_may_follow_any_other_in_the_middle_of_everything(before: str, after: str) -> None:
    world = World(blocks=12, block_size=2, seqs=3, budget=6, policy=policy_of(before))
    for number in range(8):
        name = ("interactive", "default", "batch")[number % 3]
        world.arrive(f"r{number}", prompt=2 + number, max_tokens=4, at=number // 2, service_class=name)
    world.steps(3)
    assert world.scheduler.num_waiting
    assert world.scheduler.num_running
    world.change(policy_of(after), at=3).run()
    assert_each_said_what_it_says_alone(world)
    assert set(world.reasons.values()) == {FinishReason.LENGTH}


def test_events_of_a_change_come_between_two_steps() -> None:
    world = World().arrive("a", prompt=3, max_tokens=4).steps(1)
    world.change(PolicySpec(order="priority"), at=1).run()
    kinds: list[type[Event]] = [type(event) for event in world.events]
    assert kinds.count(PolicyChanged) == 1
