"""Steps, one behaviour each. Whole scenarios are pictures in timeline/; what holds in every step is laws.py."""

import pytest

from evenflow.core.events import Preempted, Scheduled
from evenflow.core.plan import Door, LeftOut, StepOutcome, StepPlan, TokenLogprobs, WaitReason
from evenflow.core.policy.spec import ClassSpec, PolicySpec
from evenflow.core.request import FinishReason, Request, RequestId, SamplingParams
from world import World, tokens

BY_PRIORITY = PolicySpec(order="priority")


def doors(world: World) -> list[tuple[str, WaitReason]]:
    return [(door.head, door.reason) for door in world.plans[-1].doors]


# ---- doors and reasons -------------------------------------------------------------------------------------------


def test_without_work_the_plan_is_empty() -> None:
    plan = World().scheduler.schedule(now=0.0)
    assert (plan.step, plan.chunks, plan.doors, plan.num_tokens) == (1, (), (), 0)


def test_the_door_says_budget_when_no_token_would_be_left() -> None:
    world = World(budget=4).arrive("a", prompt=9).arrive("b", prompt=2).steps(1)
    assert doors(world) == [("b", WaitReason.BUDGET)]


def test_the_door_says_seats_when_all_are_taken() -> None:
    world = World(seqs=1).arrive("a", prompt=2).arrive("b", prompt=2).steps(1)
    assert doors(world) == [("b", WaitReason.MAX_NUM_SEQS)]


def test_the_door_says_memory_when_everything_known_does_not_fit() -> None:
    """Not only the first chunk: room for 4 of its 9 tokens does not let it in."""
    world = World(blocks=3, budget=8).arrive("a", prompt=5, max_tokens=2).arrive("b", prompt=9, max_tokens=2).steps(1)
    assert doors(world) == [("b", WaitReason.KV)]


def test_nobody_comes_in_while_memory_is_being_taken_back() -> None:
    world = World(blocks=4, block_size=2, budget=8, policy=BY_PRIORITY)
    world.arrive("a", prompt=3, max_tokens=5, priority=1).arrive("b", prompt=3, max_tokens=5, priority=1)
    world.arrive("urgent", prompt=1, at=2, max_tokens=1).steps(3)
    assert world.plans[-1].preempted == ("b",)
    assert world.plans[-1].entered == ()
    assert doors(world) == [("urgent", WaitReason.PREEMPTION)]


def test_one_door_speaks_for_the_whole_queue() -> None:
    world = World(seqs=1).arrive("a", prompt=2, max_tokens=9)
    for number in range(50):
        world.arrive(f"w{number}", prompt=2)
    world.steps(2)
    assert doors(world) == [("w0", WaitReason.MAX_NUM_SEQS)]


def test_what_keeps_everybody_out_is_one_door_however_many_tenants_wait() -> None:
    world = World(seqs=1, policy=PolicySpec(fairness="vtc"))
    for number in range(20):
        world.arrive(f"r{number}", prompt=2, tenant=f"t{number}")
    world.steps(1)
    assert world.plans[-1].doors == (Door("all", RequestId("r1"), WaitReason.MAX_NUM_SEQS),)


def test_where_tenants_take_turns_the_door_of_the_turn_is_another_one() -> None:
    """And other classes wait for what the head waits for."""
    classes = (ClassSpec("interactive"), ClassSpec("default"))
    world = World(blocks=4, policy=PolicySpec(fairness="vtc", classes=classes)).arrive("runs", prompt=4, tenant="x")
    world.steps(1)
    world.arrive("big", prompt=13, tenant="y", max_tokens=1, at=1).arrive("other", prompt=2, tenant="z", at=1)
    world.arrive("i", prompt=2, service_class="interactive", at=1.5, tenant="x").steps(1)
    assert world.plans[-1].doors == (
        Door("default/y", RequestId("big"), WaitReason.KV),
        Door("default", RequestId("big"), WaitReason.FAIRNESS),
    )


def test_a_running_prefill_that_gets_no_token_is_told_why() -> None:
    world = World(budget=4, policy=BY_PRIORITY).arrive("long", prompt=20, priority=1)
    world.arrive("urgent", prompt=8, at=1).steps(2)
    assert world.plans[-1].left_out == (LeftOut(RequestId("long"), WaitReason.BUDGET),)


def test_decodes_beyond_their_share_are_left_out_from_the_back() -> None:
    world = World(budget=3).arrive("a", prompt=1).arrive("b", prompt=1).arrive("c", prompt=1).steps(1)
    world.change(PolicySpec(max_num_batched_tokens=2), at=1).steps(1)
    assert world.plans[-1].left_out == (LeftOut(RequestId("c"), WaitReason.BUDGET),)


def test_a_decode_that_prefills_leave_out_is_told_so() -> None:
    world = World(budget=4, policy=PolicySpec(interleave="prefill-first")).arrive("a", prompt=1).steps(1)
    world.arrive("b", prompt=9, at=1).steps(1)
    assert world.plans[-1].left_out == (LeftOut(RequestId("a"), WaitReason.DECODE_SHARE),)


def test_a_prefill_that_hits_its_share_is_told_so() -> None:
    world = (
        World(budget=8, policy=PolicySpec(interleave="shared", max_prefill_share=0.25)).arrive("a", prompt=1).steps(1)
    )
    world.arrive("b", prompt=9, at=1).arrive("c", prompt=2, at=1).steps(1)
    assert world.chunk_sizes("b") == [2]
    assert doors(world) == [("c", WaitReason.PREFILL_SHARE)]


def test_a_long_prompt_that_hits_its_share_is_told_so() -> None:
    policy = PolicySpec(
        long_prompts="limited",
        long_prompt_tokens=8,
        max_long_prefills=2,
        long_prompt_share=0.5,
        min_long_prompt_tokens=1,
    )
    world = World(budget=8, policy=policy).arrive("s", prompt=5).arrive("a", prompt=20).arrive("b", prompt=20).steps(1)
    world.arrive("t", prompt=8, at=1).steps(1)
    assert doors(world) == [("b", WaitReason.LONG_PROMPT)]
    assert world.chunk_sizes("a") == [3, 3]


# ---- admission ---------------------------------------------------------------------------------------------------


def test_the_watermark_keeps_newcomers_out_while_others_run() -> None:
    world = World(blocks=4, watermark=2, budget=16).arrive("a", prompt=4, max_tokens=2).arrive("b", prompt=5).steps(1)
    assert doors(world) == [("b", WaitReason.KV)]


def test_an_idle_engine_ignores_the_watermark() -> None:
    world = World(blocks=4, watermark=4).arrive("a", prompt=13, max_tokens=2).run()
    assert world.reasons["a"] is FinishReason.LENGTH


def test_a_displacement_that_empties_the_engine_ignores_the_watermark_too() -> None:
    world = World(blocks=4, watermark=2, policy=BY_PRIORITY).arrive("a", prompt=4, priority=1)
    world.arrive("urgent", prompt=13, max_tokens=2, at=1).steps(2)
    assert world.plans[-1].preempted == ("a",)
    assert [entry.request.id for entry in world.plans[-1].entered] == ["urgent"]


def test_as_few_as_possible_are_displaced_and_from_the_back() -> None:
    world = World(blocks=8, budget=32, policy=BY_PRIORITY)
    for name in ("a", "b", "c"):
        world.arrive(name, prompt=7, max_tokens=2, priority=1)
    world.arrive("urgent", prompt=13, max_tokens=2, at=1).steps(2)
    assert world.plans[-1].preempted == ("c",)


def test_nobody_is_displaced_if_it_would_not_be_enough() -> None:
    world = World(blocks=6, budget=32, policy=BY_PRIORITY).arrive("first", prompt=10, max_tokens=4)
    world.arrive("later", prompt=5, max_tokens=4, priority=1).arrive("urgent", prompt=20, max_tokens=2, at=1).steps(2)
    assert world.plans[-1].preempted == ()
    assert doors(world) == [("urgent", WaitReason.KV)]


def test_equals_do_not_displace_each_other() -> None:
    world = World(seqs=1, policy=BY_PRIORITY).arrive("a", prompt=2).arrive("b", prompt=2, at=1).steps(2)
    assert world.of(Preempted) == []
    assert doors(world) == [("b", WaitReason.MAX_NUM_SEQS)]


def test_the_displaced_keeps_its_place_in_line() -> None:
    world = World(seqs=1, policy=BY_PRIORITY)
    world.arrive("a", prompt=2, max_tokens=4, priority=1).arrive("b", prompt=2, max_tokens=1, priority=1)
    world.arrive("urgent", prompt=2, max_tokens=1, at=1).run()
    assert [s.request_id for s in world.of(Scheduled)] == ["a", "urgent", "a", "b"]


@pytest.mark.parametrize("num_prompt", [1, 3])
def test_who_just_came_in_is_not_displaced_by_another_flow_in_the_same_step(num_prompt: int) -> None:
    """With one prompt token it would be a decode, with three a prefill; both are already in the plan."""
    world = World(seqs=1, policy=PolicySpec(order="priority", fairness="vtc"))
    world.arrive("low", prompt=num_prompt, priority=2, tenant="x").arrive("high", prompt=1, priority=1, tenant="y")
    world.steps(1)
    assert [entry.request.id for entry in world.plans[0].entered] == ["low"]
    assert doors(world) == [("high", WaitReason.MAX_NUM_SEQS)]
    world.steps(1)
    assert world.plans[1].preempted == ("low",)


def test_the_displaced_has_a_door_though_its_flow_was_empty() -> None:
    world = World(seqs=1, policy=PolicySpec(order="priority", fairness="vtc"))
    world.arrive("low", prompt=2, priority=1, tenant="x").arrive("urgent", prompt=2, at=1, tenant="y").steps(2)
    assert world.plans[-1].doors == (Door("all", RequestId("low"), WaitReason.PREEMPTION),)


def test_without_the_displaced_stream_its_itl_target_does_not_hold_the_step_back() -> None:
    policy = PolicySpec(order="priority", budget="itl-target", itl_target=1e-6, min_prefill_tokens=1)
    world = World(seqs=1, budget=16, policy=policy).arrive("stream", prompt=2, max_tokens=30, priority=1)
    world.arrive("urgent", prompt=10, at=20, max_tokens=1).steps(21)  # by then the model knows what a step takes
    assert world.plans[-1].preempted == ("stream",)
    assert (world.plans[-1].token_budget, world.plans[-1].num_tokens) == (16, 10)


def test_a_long_prefill_of_lower_priority_does_not_shut_the_door() -> None:
    world = World(budget=4, policy=BY_PRIORITY).arrive("long", prompt=40, priority=1)
    world.arrive("urgent", prompt=3, max_tokens=1, at=1).run()
    assert world.finished("urgent").step == 2


# ---- service classes ---------------------------------------------------------------------------------------------

GUARANTEED = (ClassSpec("default"), ClassSpec("batch", rank=1, guaranteed_kv=0.5))


def test_a_class_at_its_maximum_pays_for_its_own_growth_though_memory_is_free() -> None:
    classes = (ClassSpec("default"), ClassSpec("batch", rank=1, max_kv=0.5))
    world = World(blocks=8, block_size=2, prefix_caching=False, policy=PolicySpec(classes=classes))
    world.arrive("first", prompt=3, max_tokens=4, service_class="batch")
    world.arrive("second", prompt=3, max_tokens=4, service_class="batch").steps(3)
    assert world.plans[-1].preempted == ("second",)


def test_growth_passes_over_a_class_that_is_within_its_guarantee() -> None:
    """The batch request is last in line, and the one before it gives way."""
    world = World(blocks=8, block_size=2, prefix_caching=False, policy=PolicySpec(classes=GUARANTEED))
    world.arrive("first", prompt=4, max_tokens=3).arrive("second", prompt=4, max_tokens=3)
    world.arrive("batch", prompt=2, max_tokens=4, service_class="batch").steps(2)
    assert world.plans[-1].preempted == ("second",)
    world.run()


def test_a_better_class_waits_where_a_worse_one_is_within_its_guarantee() -> None:
    world = World(blocks=8, block_size=2, policy=PolicySpec(classes=GUARANTEED))
    world.arrive("batch", prompt=4, max_tokens=3, service_class="batch").steps(1)
    world.arrive("runs", prompt=4, max_tokens=4, at=1).arrive("waits", prompt=6, max_tokens=1, at=1).steps(1)
    assert world.plans[-1].preempted == ()
    assert doors(world) == [("waits", WaitReason.QUOTA)]
    world.run()


def test_a_worse_class_gives_back_what_it_has_beyond_its_guarantee() -> None:
    world = World(blocks=8, block_size=2, budget=32, policy=PolicySpec(classes=GUARANTEED))
    for number in range(4):
        world.arrive(f"b{number}", prompt=3, max_tokens=4, service_class="batch")
    world.steps(1)
    world.arrive("first", prompt=8, max_tokens=1, at=1).steps(1)
    assert world.plans[-1].preempted == ("b3", "b2")


# ---- chunks ------------------------------------------------------------------------------------------------------


def test_a_prompt_is_fed_in_chunks_of_what_the_budget_leaves() -> None:
    world = World(budget=4).arrive("a", prompt=10, max_tokens=1).run()
    assert world.chunk_sizes("a") == [4, 4, 2]
    assert [chunk.samples for plan in world.plans for chunk in plan.chunks] == [False, False, True]


def test_a_decode_is_never_held_up_by_a_prefill() -> None:
    world = World(budget=4).arrive("a", prompt=2, max_tokens=9).arrive("long", prompt=20, max_tokens=1, at=1).run()
    assert world.chunk_sizes("a") == [2] + [1] * 8
    assert world.finished("a").step == 9


def test_the_last_token_of_a_prompt_is_prefill_even_alone() -> None:
    world = World(budget=4).arrive("a", prompt=5, max_tokens=2).run()
    assert [(plan.num_prefill_tokens, plan.num_decode_tokens) for plan in world.plans] == [(4, 0), (1, 0), (0, 1)]


def test_attended_context_counts_every_position_behind_every_fed_token() -> None:
    world = World(budget=4).arrive("a", prompt=5, max_tokens=2).run()
    assert [plan.attended_context_tokens for plan in world.plans] == [1 + 2 + 3 + 4, 5, 6]


def test_the_block_table_is_the_same_object_until_it_grows() -> None:
    world = World(block_size=4).arrive("a", prompt=2, max_tokens=5).run()
    tables = [plan.chunks[0].block_ids for plan in world.plans]
    assert tables[0] is tables[1] is tables[2]
    assert len(tables[3]) == 2


def test_the_first_output_tells_how_much_was_cached() -> None:
    world = World().arrive("a", prompt=tokens("x", 9), max_tokens=1)
    world.arrive("b", prompt=tokens("x", 9), max_tokens=1, at=2).run()
    assert world.last["a"].num_cached_tokens == 0
    assert world.last["b"].num_cached_tokens == 8
    assert world.plans[-1].num_cached_tokens == 8


def test_what_a_resumed_request_finds_again_is_not_told_as_cached() -> None:
    """Usage reports what the cache spared the prompt; what a preemption lost and found is the engine's own affair."""
    world = World(blocks=7, block_size=2, budget=8).arrive("a", prompt=3, max_tokens=5).arrive("b", prompt=7).run()
    assert [s.cached_tokens for s in world.of(Scheduled) if s.request_id == "b"] == [0, 6]
    assert world.last["b"].num_cached_tokens == 0


# ---- what the executor reports besides tokens --------------------------------------------------------------------


def logprob(token_id: int) -> TokenLogprobs:
    return TokenLogprobs(token_id, -0.5, 1, ())


def test_log_probabilities_are_passed_on_with_the_token() -> None:
    scheduler = World(budget=2).scheduler
    a = RequestId("a")
    scheduler.add(Request(a, (1, 2, 3), SamplingParams(max_tokens=2, logprobs=0, prompt_logprobs=0), 0.0), now=0.0)

    first = scheduler.schedule(now=0.0)
    (output,) = scheduler.update(first, StepOutcome({}, prompt_logprobs={a: (logprob(2), logprob(3))}), now=1.0)
    assert (output.token_ids, output.prompt_logprobs) == ((), (logprob(2), logprob(3)))

    second = scheduler.schedule(now=1.0)
    (output,) = scheduler.update(second, StepOutcome({a: 7}, {a: logprob(7)}), now=2.0)
    assert (output.token_ids, output.logprobs, output.finish_reason) == ((7,), logprob(7), None)

    third = scheduler.schedule(now=2.0)
    (output,) = scheduler.update(third, StepOutcome({a: 8}, {a: logprob(8)}), now=3.0)
    assert (output.token_ids, output.logprobs, output.finish_reason) == ((8,), logprob(8), FinishReason.LENGTH)


def test_a_recompute_does_not_report_log_probabilities_of_the_prompt_again() -> None:
    world = World(blocks=4, block_size=2, budget=4).arrive("a", prompt=3, max_tokens=5)
    sampling = SamplingParams(max_tokens=5, prompt_logprobs=0)
    world.submit(Request(RequestId("b"), tokens("b", 3), sampling, 0.0))
    shadow = world.execute

    def with_prompt_logprobs(plan: StepPlan) -> StepOutcome:
        reports = {}
        for chunk in plan.chunks:
            if chunk.request_id == "b":
                following = tokens("b", 3)[chunk.start + 1 : chunk.start + 1 + len(chunk.token_ids)]
                reports[chunk.request_id] = tuple(logprob(token_id) for token_id in following)
        return StepOutcome(shadow(plan).sampled, prompt_logprobs=reports)

    world.execute = with_prompt_logprobs
    world.run()
    assert world.finished("b").num_preemptions > 0
    assert world.chunk_sizes("b")[:2] == [1, 2]
    assert [entry.token_id for entry in world.prompt_logprobs["b"]] == list(tokens("b", 3)[1:])


def test_a_prompt_that_wants_log_probabilities_is_computed_in_full() -> None:
    world = World().arrive("a", prompt=tokens("x", 9), max_tokens=1).run()
    sampling = SamplingParams(max_tokens=1, prompt_logprobs=0)
    world.submit(Request(RequestId("b"), tokens("x", 9), sampling, 9.0)).run()
    assert world.chunk_sizes("b") == [9]
