"""Requests in and out of the scheduler: what is refused, how each ends, and what the log says of it."""

import pytest

from evenflow.core.errors import ContextOverflow, DuplicateRequest, InvalidRequest
from evenflow.core.events import Arrived, Event, Finished, FirstToken, Preempted, Rejected, Scheduled
from evenflow.core.policy.preemption import PreemptionMode
from evenflow.core.request import FinishReason, Request, RequestId, SamplingParams
from world import VOCAB_SIZE, World, alone, tokens

ABORT = FinishReason.ABORT


def request(name: str, num_prompt: int = 5, *, eos: tuple[int, ...] = (), **sampling: object) -> Request:
    params = SamplingParams(**sampling)  # type: ignore[arg-type]  # fields of every type
    return Request(RequestId(name), tokens(name, num_prompt), params, 0.0, eos_token_ids=eos)


# ---- refused -----------------------------------------------------------------------------------------------------


def test_an_id_in_use_is_refused_and_free_again_at_the_end() -> None:
    world = World().arrive("a", prompt=3, max_tokens=2).steps(1)
    with pytest.raises(DuplicateRequest, match="'a'"):
        world.scheduler.add(request("a"), now=1.0)
    world.run()
    world.scheduler.add(request("a"), now=9.0)


@pytest.mark.parametrize("token_id", [-1, VOCAB_SIZE])
def test_a_token_outside_the_vocabulary_is_refused(token_id: int) -> None:
    world = World()
    with pytest.raises(InvalidRequest, match="prompt has a token id outside") as refused:
        world.scheduler.add(Request(RequestId("a"), (1, token_id, 2), SamplingParams(), 0.0), now=0.0)
    assert refused.value.param == "prompt"
    with pytest.raises(InvalidRequest, match="logit_bias") as refused:
        world.scheduler.add(request("b", logit_bias=((VOCAB_SIZE, 1.0),)), now=0.0)
    assert refused.value.param == "logit_bias"
    assert not world.scheduler.has_work


def test_the_ends_of_the_vocabulary_are_inside() -> None:
    world = World().submit(
        Request(RequestId("a"), (0, VOCAB_SIZE - 1), SamplingParams(logit_bias=((VOCAB_SIZE - 1, 1.0),)), 0.0)
    )
    assert world.run().reasons["a"] is FinishReason.LENGTH


def test_prompt_plus_output_may_fill_the_context_and_not_more() -> None:
    world = World(max_model_len=10).arrive("fits", prompt=6, max_tokens=4).run()
    assert len(world.outputs["fits"]) == 4
    with pytest.raises(ContextOverflow, match="11, more than the context of 10") as refused:
        world.scheduler.add(request("over", 7, max_tokens=4), now=0.0)
    assert refused.value.param == "max_tokens"


def test_a_request_may_fill_the_whole_pool_and_one_token_more_is_never_stored() -> None:
    """The last output token is returned and never fed, so it needs no slot."""
    world = World(blocks=2, block_size=4, watermark=1).arrive("fits", prompt=5, max_tokens=4).run()
    assert len(world.outputs["fits"]) == 4
    with pytest.raises(ContextOverflow, match="more than the context of 9"):
        world.scheduler.add(request("over", 5, max_tokens=5), now=0.0)


def test_a_refusal_is_logged_and_changes_nothing() -> None:
    world = World(max_model_len=10)
    with pytest.raises(ContextOverflow) as refused:
        world.scheduler.add(request("over", 20), now=3.0)
    assert world.events == [Rejected(3.0, RequestId("over"), refused.value.message)]
    assert not world.scheduler.has_work
    assert world.arrive("next", prompt=2).run().reasons["next"] is FinishReason.LENGTH


# ---- ends --------------------------------------------------------------------------------------------------------


def test_a_stop_token_ends_the_answer_and_is_part_of_it() -> None:
    said = alone(request("a", max_tokens=8))
    world = World().submit(request("a", max_tokens=8, stop_token_ids=(said[3],))).run()
    assert tuple(world.outputs["a"]) == said[:4]
    assert world.reasons["a"] is FinishReason.STOP
    assert world.last["a"].stop_token_id == said[3]


def test_the_models_end_token_ends_the_answer_unless_ignored() -> None:
    said = alone(request("a", max_tokens=8))
    world = World().submit(request("a", max_tokens=8, eos=(said[3],))).run()
    assert world.reasons["a"] is FinishReason.STOP
    world = World().submit(request("a", max_tokens=8, eos=(said[3],), ignore_eos=True)).run()
    assert world.reasons["a"] is FinishReason.LENGTH
    assert world.last["a"].stop_token_id is None


def test_a_stop_token_before_min_tokens_does_not_end_the_answer() -> None:
    said = alone(request("a", max_tokens=8))
    world = World().submit(request("a", max_tokens=8, stop_token_ids=(said[1], said[4]), min_tokens=3)).run()
    assert tuple(world.outputs["a"]) == said[:5]
    world = World().submit(request("a", max_tokens=8, stop_token_ids=(said[1],), min_tokens=2)).run()
    assert tuple(world.outputs["a"]) == said[:2]


def test_a_stop_token_in_the_last_place_counts_as_a_stop() -> None:
    said = alone(request("a", max_tokens=4))
    world = World().submit(request("a", max_tokens=4, stop_token_ids=(said[3],))).run()
    assert world.reasons["a"] is FinishReason.STOP


def test_a_stop_token_still_stops_after_a_preemption() -> None:
    said = alone(request("late", 3, max_tokens=6))
    world = World(blocks=4, block_size=2, budget=8, prefix_caching=False)
    world.arrive("early", prompt=3, max_tokens=5).submit(request("late", 3, max_tokens=6, stop_token_ids=(said[3],)))
    world.run()
    assert world.finished("late").num_preemptions > 0
    assert tuple(world.outputs["late"]) == said[:4]
    assert world.reasons["late"] is FinishReason.STOP


def test_nobody_can_be_ended_twice_or_before_arriving() -> None:
    world = World().arrive("a", prompt=3, max_tokens=2)
    assert not world.scheduler.finish(RequestId("a"), ABORT, now=0.0)
    world.steps(1)
    assert world.scheduler.finish(RequestId("a"), ABORT, now=1.0)
    assert not world.scheduler.finish(RequestId("a"), ABORT, now=1.0)
    assert len(world.of(Finished)) == 1


def test_an_abort_while_waiting_is_final() -> None:
    world = World(seqs=1).arrive("a", prompt=3, max_tokens=4).arrive("b", prompt=3).abort("b", at=2).run()
    assert world.outputs["b"] == []
    assert not any(scheduled.request_id == "b" for scheduled in world.of(Scheduled))
    assert world.finished("b").reason is ABORT


def test_an_abort_while_running_frees_its_blocks_at_once() -> None:
    world = World().arrive("a", prompt=9, max_tokens=9).steps(2)
    assert world.scheduler.kv.num_free_blocks < world.blocks
    assert world.scheduler.finish(RequestId("a"), ABORT, now=2.0)
    assert world.scheduler.kv.num_free_blocks == world.blocks
    assert not world.scheduler.has_work


def test_an_abort_while_preempted_is_final() -> None:
    world = World(blocks=4, block_size=2, budget=8).arrive("a", prompt=3, max_tokens=5)
    world.arrive("b", prompt=3, max_tokens=5).steps(3)
    assert [event.request_id for event in world.of(Preempted)] == ["b"]
    assert world.abort("b", at=3).run().finished("b").num_computed_tokens == 0


def test_an_end_from_outside_may_have_another_reason() -> None:
    """A stop string is found by the front, which then ends the request."""
    world = World().arrive("a", prompt=3, max_tokens=9).steps(2)
    world.scheduler.finish(RequestId("a"), FinishReason.STOP, now=2.0)
    assert world.finished("a").reason is FinishReason.STOP


def test_what_was_in_flight_when_its_id_came_again_is_not_given_to_the_newcomer() -> None:
    world = World()
    world.scheduler.add(request("a", 5), now=0.0)
    plan = world.scheduler.schedule(now=0.0)
    world.scheduler.finish(RequestId("a"), ABORT, now=0.0)
    world.scheduler.add(request("a", 7), now=0.0)
    assert world.scheduler.update(plan, world.execute(plan), now=1.0) == []
    world.scheduler.check()
    following = world.scheduler.schedule(now=1.0)
    assert following.left == ("a",)
    assert [entry.token_ids for entry in following.entered] == [tokens("a", 7)]


# ---- told --------------------------------------------------------------------------------------------------------


def test_the_log_of_a_request_from_arrival_to_end() -> None:
    world = World(budget=4).arrive("a", prompt=6, at=0.5, max_tokens=2, priority=3, tenant="t")
    world.clock.advance_to(1.0)
    world.run()
    a = RequestId("a")
    (finished,) = world.of(Finished)
    assert len(finished.content) == 7 // world.block_size, "a number for each block that is full"
    expected: list[Event] = [
        Arrived(0.5, a, 1.0, 6, 2, "default", "t", "default", 3),
        Scheduled(1.0, 1, a, 0, resumed=False, swapped_in_tokens=0),
        FirstToken(3.0, 2, a),
        Finished(4.0, 3, a, FinishReason.LENGTH, 6, 2, 7, 0, finished.content),
    ]
    assert world.events == expected


def test_the_log_of_a_preemption_says_what_was_lost_and_to_whom() -> None:
    world = World(blocks=4, block_size=2, budget=8).arrive("a", prompt=3, max_tokens=5)
    world.arrive("b", prompt=3, max_tokens=5).run()
    assert world.of(Preempted) == [
        Preempted(2.0, 3, RequestId("b"), 4, RequestId("a"), PreemptionMode.RECOMPUTE, swapped_out_tokens=0)
    ]
    assert [(s.request_id, s.cached_tokens, s.resumed) for s in world.of(Scheduled)] == [
        ("a", 0, False),
        ("b", 0, False),
        ("b", 0, True),
    ]


def test_the_number_waiting_and_running_is_known() -> None:
    world = World(seqs=1).arrive("a", prompt=3).arrive("b", prompt=3).steps(1)
    assert (world.scheduler.num_running, world.scheduler.num_waiting) == (1, 1)
