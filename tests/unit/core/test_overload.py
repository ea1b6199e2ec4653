"""A full queue, shedding, deadlines: what is refused at once, and what the refusal says."""

from dataclasses import replace

import pytest

from evenflow.core.errors import DeadlineTooSoon, InvalidRequest, QueueFull
from evenflow.core.events import Finished, Rejected
from evenflow.core.policy.spec import ClassSpec, PolicySpec
from evenflow.core.request import FinishReason, RequestId, RequestStatus
from world import World

RANKED = (ClassSpec("interactive", rank=0), ClassSpec("default", rank=1), ClassSpec("batch", rank=2))


def waiting(world: World) -> list[str]:
    running = {state.request.id for state in world.scheduler.running()}
    return [state.request.id for state in world.scheduler.states() if state.request.id not in running]


def shed(world: World) -> list[str]:
    return [name for name, reason in world.reasons.items() if reason is FinishReason.SHED]


# ---- bounded queues ----------------------------------------------------------------------------------------------


def test_more_requests_than_may_wait_are_refused_and_say_when_to_come_again() -> None:
    world = World(seqs=1, policy=PolicySpec(max_waiting_requests=2))
    for number in range(4):
        world.arrive(f"r{number}", prompt=3)
    world.steps(1)
    error = world.refused["r2"]
    assert isinstance(error, QueueFull)
    assert error.retry_after_seconds > 0
    assert "the queue is full; try again in about" in error.message
    assert [event.request_id for event in world.of(Rejected)] == ["r2", "r3"]
    assert world.run().reasons == {"r0": FinishReason.LENGTH, "r1": FinishReason.LENGTH}


def test_more_tokens_than_may_wait_are_refused() -> None:
    world = World(seqs=1, policy=PolicySpec(max_waiting_tokens=10))
    world.arrive("a", prompt=4, max_tokens=9).steps(1)
    world.arrive("b", prompt=6, at=1).arrive("c", prompt=5, at=1).arrive("d", prompt=4, at=1).steps(1)
    assert list(world.refused) == ["c"]
    assert waiting(world) == ["b", "d"]


def test_an_empty_queue_takes_any_one_request() -> None:
    world = World(seqs=1, policy=PolicySpec(max_waiting_tokens=10)).arrive("huge", prompt=50).run()
    assert world.reasons["huge"] is FinishReason.LENGTH


def test_each_class_has_a_queue_of_its_own_bound() -> None:
    classes = (ClassSpec("default"), ClassSpec("batch", max_waiting_requests=1, max_waiting_tokens=5))
    world = World(seqs=1, policy=PolicySpec(classes=classes)).arrive("runs", prompt=2, max_tokens=9).steps(1)
    world.arrive("b1", prompt=3, at=1, service_class="batch").arrive("b2", prompt=1, at=1, service_class="batch")
    world.arrive("d1", prompt=30, at=1).arrive("d2", prompt=30, at=1).steps(1)
    assert list(world.refused) == ["b2"]
    assert "class batch is full" in str(world.refused["b2"])


def test_who_has_run_before_takes_no_room_in_the_queue() -> None:
    world = World(blocks=4, block_size=2, budget=8, policy=PolicySpec(max_waiting_requests=1))
    world.arrive("a", prompt=3, max_tokens=5).steps(1)
    world.arrive("b", prompt=3, max_tokens=5, at=1).steps(2)
    preempted = [state for state in world.scheduler.states() if state.status is RequestStatus.PREEMPTED]
    assert [state.request.id for state in preempted] == ["b"]
    world.arrive("c", prompt=3, max_tokens=2, at=3).run()
    assert world.refused == {}


# ---- shedding ----------------------------------------------------------------------------------------------------


def full_house() -> World:
    """One runs, and of each class one waits."""
    policy = PolicySpec(classes=RANKED, max_waiting_requests=3)
    world = World(seqs=1, policy=policy).arrive("runs", prompt=2, max_tokens=9, service_class="interactive").steps(1)
    for name in ("batch", "default", "interactive"):
        world.arrive(f"{name}1", prompt=3, at=1, service_class=name)
    return world


def test_a_better_class_takes_the_place_of_the_worst() -> None:
    world = full_house().arrive("new", prompt=3, at=1, service_class="default").steps(1)
    assert shed(world) == ["batch1"]
    assert waiting(world) == ["default1", "interactive1", "new"]
    retry = world.last["batch1"].retry_after_seconds
    assert retry is not None
    assert retry > 0
    assert world.run().reasons["new"] is FinishReason.LENGTH


def test_the_latest_of_the_worst_class_goes_first() -> None:
    world = full_house()
    world = World(seqs=1, policy=PolicySpec(classes=RANKED, max_waiting_requests=3))
    world.arrive("runs", prompt=2, max_tokens=9).steps(1)
    for number in range(3):
        world.arrive(f"b{number}", prompt=3, at=1, service_class="batch")
    world.arrive("d0", prompt=3, at=2).arrive("d1", prompt=3, at=2).steps(2)
    assert shed(world) == ["b2", "b1"]


def test_equals_and_worse_are_refused_and_shed_nobody() -> None:
    world = full_house().arrive("late", prompt=3, at=1, service_class="batch").steps(1)
    assert isinstance(world.refused["late"], QueueFull)
    assert shed(world) == []


def test_as_many_are_shed_as_the_newcomer_has_tokens_and_if_that_is_not_enough_nobody() -> None:
    policy = PolicySpec(classes=RANKED, max_waiting_tokens=20)
    world = World(seqs=1, policy=policy).arrive("runs", prompt=2, max_tokens=9, service_class="interactive").steps(1)
    for number in range(3):
        world.arrive(f"b{number}", prompt=6, at=1, service_class="batch")
    world.arrive("big", prompt=14, at=1, service_class="interactive").steps(1)
    assert shed(world) == ["b2", "b1"]
    world.arrive("too big", prompt=21, at=2, service_class="default").steps(1)
    assert isinstance(world.refused["too big"], QueueFull)
    assert shed(world) == ["b2", "b1"]


# ---- when to come again ------------------------------------------------------------------------------------------


def test_the_time_to_come_again_follows_the_measured_speed_of_the_queue() -> None:
    """A seat is free every 4 steps, so that one of the 3 too many has room after about 4 seconds."""
    world = World(seqs=1, policy=PolicySpec(max_waiting_requests=10))
    for number in range(11):
        world.arrive(f"r{number}", prompt=2, max_tokens=4)
    world.steps(1)
    for number in range(30):
        world.arrive(f"s{number}", prompt=2, max_tokens=4, at=1 + number)
    world.steps(30)
    errors = [error for error in world.refused.values() if isinstance(error, QueueFull)]
    assert errors[-1].retry_after_seconds == pytest.approx(4.0, rel=0.3)


def test_before_the_queue_has_drained_a_second_is_the_guess() -> None:
    world = (
        World(seqs=1, policy=PolicySpec(max_waiting_requests=1)).arrive("a", prompt=2).arrive("b", prompt=2).steps(1)
    )
    error = world.refused["b"]
    assert isinstance(error, QueueFull)
    assert error.retry_after_seconds == 1.0


# ---- deadlines ---------------------------------------------------------------------------------------------------


def test_a_request_that_waits_past_its_deadline_never_runs() -> None:
    world = World(seqs=1).arrive("a", prompt=3, max_tokens=9).arrive("b", prompt=3, deadline=3.0).run()
    assert world.finished("b").reason is FinishReason.EXPIRED
    assert world.finished("b").time == 3.0
    assert world.last["b"].token_ids == ()
    assert world.outputs["b"] == []


def test_a_deadline_that_comes_while_the_request_runs_does_not_end_it() -> None:
    world = World().arrive("a", prompt=3, max_tokens=9, deadline=2.0).run()
    assert world.reasons["a"] is FinishReason.LENGTH


def test_a_deadline_that_has_passed_is_refused_on_arrival() -> None:
    world = World().arrive("a", prompt=3, at=5, deadline=5.0).arrive("b", prompt=3, at=5, deadline=5.5)
    world.clock.advance_to(5.0)
    world.run()
    assert isinstance(world.refused["a"], DeadlineTooSoon)
    assert world.reasons == {"b": FinishReason.LENGTH}


def test_when_all_that_waits_expires_there_is_no_work_left() -> None:
    world = World(seqs=1).arrive("a", prompt=3, max_tokens=2).arrive("b", prompt=3, deadline=2.0).steps(2)
    assert [output.request_id for output in world.scheduler.expire(now=2.0)] == ["b"]
    assert not world.scheduler.has_work
    assert world.scheduler.expire(now=9.0) == []


def test_aborts_leave_no_deadline_behind() -> None:
    world = World(seqs=1).arrive("a", prompt=3, max_tokens=40)
    for number in range(30):
        world.arrive(f"r{number}", prompt=3, deadline=30.0, at=1).abort(f"r{number}", at=2)
    world.arrive("last", prompt=3, deadline=30.0, at=3).run()
    assert world.finished("last").reason is FinishReason.EXPIRED
    assert len(world.of(Finished)) == 32


def hopeless(policy: PolicySpec, **last: object) -> World:
    """One prompt of 4 tokens comes in every 4 seconds, and 8 of them wait."""
    world = World(seqs=1, policy=policy)
    for number in range(14):
        world.arrive(f"r{number}", prompt=4, max_tokens=4)
    world.steps(20)
    return world.arrive("last", prompt=4, at=20, **last).steps(1)  # type: ignore[arg-type]  # fields of every type


def test_what_surely_comes_too_late_is_refused_at_once_if_the_policy_says_so() -> None:
    late = PolicySpec(refuse_late=True)
    error = hopeless(late, deadline=30.0).refused["last"]
    assert isinstance(error, DeadlineTooSoon)
    assert error.param == "ttft_deadline"
    assert "its deadline is in 10 s" in error.message
    assert hopeless(PolicySpec(), deadline=30.0).refused == {}
    assert hopeless(late, deadline=70.0).refused == {}
    assert hopeless(late).refused == {}


def test_what_comes_in_before_the_others_is_not_called_late_because_of_them() -> None:
    late = PolicySpec(refuse_late=True)
    assert hopeless(replace(late, order="deadline"), deadline=30.0).refused == {}
    assert hopeless(replace(late, order="priority"), deadline=30.0, priority=-1).refused == {}
    assert hopeless(replace(late, classes=RANKED), deadline=30.0, service_class="interactive").refused == {}


def test_what_better_classes_have_waiting_comes_in_first() -> None:
    policy = replace(PolicySpec(refuse_late=True), classes=RANKED)
    error = hopeless(policy, deadline=30.0, service_class="batch").refused["last"]
    assert isinstance(error, DeadlineTooSoon)


# ---- classes -----------------------------------------------------------------------------------------------------


def test_a_class_that_is_not_there_is_refused_with_the_nearest() -> None:
    world = World().arrive("a", prompt=3, service_class="bach").steps(1)
    error = world.refused["a"]
    assert isinstance(error, InvalidRequest)
    assert (error.param, error.message) == ("service_class", "there is no service class 'bach'; use batch")
    assert world.of(Rejected)[0].request_id == RequestId("a")


def test_a_request_that_its_class_could_never_hold_is_refused() -> None:
    classes = (ClassSpec("default", guaranteed_kv=0.5), ClassSpec("batch", max_kv=0.25))
    world = World(blocks=8, block_size=4, policy=PolicySpec(classes=classes))
    world.arrive("fits", prompt=5, max_tokens=4, service_class="batch")
    world.arrive("over", prompt=6, max_tokens=4, service_class="batch")
    world.arrive("all", prompt=29, max_tokens=4).run()
    assert list(world.refused) == ["over"]
    assert "more than the context of 9 tokens" in str(world.refused["over"])
