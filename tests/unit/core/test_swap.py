"""What becomes of a victim with host memory: who swaps, what is copied and when, and that nothing is left behind."""

from dataclasses import replace

import pytest

from evenflow.core.block_pool import BlockId
from evenflow.core.events import Finished, Preempted, Scheduled
from evenflow.core.plan import BlockCopy, StepOutcome, StepPlan
from evenflow.core.policy.preemption import PreemptionMode
from evenflow.core.policy.spec import PolicySpec
from evenflow.core.request import Request, RequestId, RequestStatus, SamplingParams
from world import World, assert_each_said_what_it_says_alone, tokens

SWAP, RECOMPUTE = PreemptionMode.SWAP, PreemptionMode.RECOMPUTE
SWAPS = PolicySpec(preemption="swap")


def two_that_do_not_fit(*, host_blocks: int, policy: PolicySpec = SWAPS, prefix_caching: bool = False) -> World:
    """b has computed 6 tokens in 3 blocks when a takes its memory, in step 3."""
    world = World(blocks=7, block_size=2, host_blocks=host_blocks, policy=policy, prefix_caching=prefix_caching)
    return world.arrive("a", prompt=7, max_tokens=5).arrive("b", prompt=5, max_tokens=6)


def copies(*pairs: tuple[int, int]) -> tuple[BlockCopy, ...]:
    return tuple(BlockCopy(BlockId(source), BlockId(target)) for source, target in pairs)


def modes(world: World) -> list[tuple[str, PreemptionMode]]:
    return [(event.request_id, event.mode) for event in world.of(Preempted)]


def test_a_swapped_request_keeps_what_it_has_computed() -> None:
    world = two_that_do_not_fit(host_blocks=3).steps(3)
    (swapped,) = (state for state in world.scheduler.states() if state.request.id == "b")
    assert (swapped.status, swapped.num_computed_tokens) == (RequestStatus.SWAPPED, 6)
    assert world.plans[-1].swap_out == copies((4, 0), (5, 1), (6, 2))
    assert world.scheduler.kv.num_free_host_blocks == 0
    world.run()
    assert_each_said_what_it_says_alone(world)
    assert world.of(Preempted) == [Preempted(2.0, 3, RequestId("b"), 0, RequestId("a"), SWAP, swapped_out_tokens=6)]
    assert world.of(Scheduled)[-1] == Scheduled(5.0, 6, RequestId("b"), 0, resumed=True, swapped_in_tokens=6)
    assert world.plans[5].swap_in == copies((0, 0), (1, 1), (2, 2))
    assert sum(world.chunk_sizes("b")) == 5 + 6 - 1, "something was computed twice"


@pytest.mark.parametrize(
    ("host_blocks", "policy"), [(0, SWAPS), (2, SWAPS), (3, replace(SWAPS, preemption="recompute"))]
)
def test_without_room_or_wish_it_is_recomputed(host_blocks: int, policy: PolicySpec) -> None:
    world = two_that_do_not_fit(host_blocks=host_blocks, policy=policy).run()
    assert_each_said_what_it_says_alone(world)
    assert modes(world) == [("b", RECOMPUTE)]
    assert world.of(Preempted)[0].lost_tokens == 6
    assert not any(plan.swap_out or plan.swap_in for plan in world.plans)


def test_a_swapped_request_waits_until_everything_known_fits() -> None:
    """Seven tokens, and the block for its next: 4 blocks, of which 2 are free while a runs."""
    world = two_that_do_not_fit(host_blocks=3).run()
    assert [plan.step for plan in world.plans if plan.swap_in] == [6]
    assert world.finished("a").step == 5


def test_blocks_that_are_still_on_the_device_are_not_copied_back() -> None:
    world = two_that_do_not_fit(host_blocks=3, prefix_caching=True).run()
    assert_each_said_what_it_says_alone(world)
    resumed = world.of(Scheduled)[-1]
    assert (resumed.cached_tokens, resumed.swapped_in_tokens) == (2, 4)
    assert [len(plan.swap_in) for plan in world.plans if plan.swap_in] == [2]
    assert world.scheduler.kv.num_free_host_blocks == 3


def test_if_all_of_it_is_still_on_the_device_host_memory_is_free_at_once() -> None:
    world = World(seqs=1, block_size=2, host_blocks=3, policy=replace(SWAPS, order="priority"))
    world.arrive("long", prompt=5, max_tokens=6, priority=1).arrive("urgent", prompt=2, max_tokens=1, at=2).run()
    assert modes(world) == [("long", SWAP)]
    resumed = world.of(Scheduled)[-1]
    assert (resumed.cached_tokens, resumed.swapped_in_tokens) == (6, 0)
    assert not any(plan.swap_in for plan in world.plans)
    assert_each_said_what_it_says_alone(world)


def test_what_two_victims_share_is_copied_once() -> None:
    world = World(blocks=9, block_size=2, budget=32, host_blocks=8, policy=SWAPS)
    common = tokens("common", 4)
    world.arrive("a", prompt=6, max_tokens=12)
    world.arrive("b", prompt=(*common, 1), max_tokens=9, at=1)
    world.arrive("c", prompt=(*common, 2), max_tokens=8, at=2).run()
    assert_each_said_what_it_says_alone(world)
    assert modes(world)[:2] == [("c", SWAP), ("b", SWAP)]
    assert [event.swapped_out_tokens for event in world.of(Preempted)][:2] == [5, 8]
    assert [len(plan.swap_out) for plan in world.plans if plan.swap_out][:2] == [3, 4 - 2]


def test_a_request_that_is_swapped_again_copies_only_what_is_new() -> None:
    world = World(seqs=1, block_size=2, host_blocks=9, blocks=9, policy=replace(SWAPS, order="priority"))
    world.arrive("long", prompt=5, max_tokens=12, priority=1)
    world.arrive("one", prompt=2, max_tokens=1, at=2).arrive("two", prompt=2, max_tokens=1, at=5).run()
    assert modes(world) == [("long", SWAP), ("long", SWAP)]
    first, second = (event.swapped_out_tokens for event in world.of(Preempted))
    assert (first, second) == (6, 8)
    assert [len(plan.swap_out) for plan in world.plans if plan.swap_out] == [3, 1]
    assert_each_said_what_it_says_alone(world)


def test_host_blocks_that_are_read_in_a_step_are_not_written_in_it() -> None:
    """h comes back from the only three host blocks; in the same step, k takes the seat of low, which had passed h."""
    policy = replace(SWAPS, order="priority", max_backfill=1)

    def play(host_blocks: int) -> World:
        world = World(blocks=7, block_size=2, seqs=2, host_blocks=host_blocks, policy=policy, prefix_caching=False)
        world.arrive("a", prompt=7, max_tokens=5).arrive("h", prompt=5, max_tokens=6)
        world.arrive("low", prompt=1, max_tokens=8, priority=2, at=3)
        world.arrive("k", prompt=1, max_tokens=2, priority=1, at=5).run()
        assert_each_said_what_it_says_alone(world)
        assert [(e.step, e.request_id) for e in world.of(Preempted)] == [(3, "h"), (6, "low")]
        assert world.plans[5].swap_in == copies((0, 1), (1, 2), (2, 3))
        return world

    assert modes(play(3)) == [("h", SWAP), ("low", RECOMPUTE)]
    roomy = play(4)
    assert modes(roomy) == [("h", SWAP), ("low", SWAP)]
    assert roomy.plans[5].swap_out == copies((5, 3))


def test_an_abort_frees_host_memory_for_the_next_victim() -> None:
    world = two_that_do_not_fit(host_blocks=3)
    world.abort("b", at=3).arrive("c", prompt=3, max_tokens=6, at=3).run()
    assert modes(world) == [("b", SWAP), ("c", SWAP)]
    assert world.finished("b").num_computed_tokens == 0
    assert_each_said_what_it_says_alone(world)


def test_nothing_computed_is_nothing_to_swap() -> None:
    """The victim has just come in, and its budget went to others."""
    world = World(blocks=9, block_size=2, budget=4, host_blocks=9, policy=replace(SWAPS, order="priority"))
    world.arrive("a", prompt=4, max_tokens=1, priority=1).arrive("b", prompt=6, max_tokens=1, priority=1)
    world.arrive("c", prompt=12, max_tokens=1, at=0, priority=2).arrive("urgent", prompt=9, max_tokens=1, at=1)
    world.run()
    assert_each_said_what_it_says_alone(world)
    for event in world.of(Preempted):
        assert (event.mode is SWAP) == (event.lost_tokens + event.swapped_out_tokens > 0)


def test_with_enough_host_memory_nothing_is_ever_computed_twice() -> None:
    world = World(blocks=12, block_size=2, seqs=6, budget=12, host_blocks=100, policy=SWAPS, prefix_caching=False)
    for index in range(8):
        world.arrive(f"r{index}", prompt=3 + index % 4, max_tokens=10 + index % 5, at=index)
    world.run()
    assert_each_said_what_it_says_alone(world)
    assert len(world.of(Preempted)) >= 4
    assert sum(event.lost_tokens for event in world.of(Preempted)) == 0
    fed = sum(len(chunk.token_ids) for plan in world.plans for chunk in plan.chunks)
    assert fed == sum(e.num_prompt_tokens + e.num_output_tokens - 1 for e in world.of(Finished))


def test_a_prompt_that_wants_log_probabilities_goes_on_where_it_was_swapped() -> None:
    """Not further on, although the rest of it is cached: every position must run, or have run."""
    prompt = tokens("b", 9)
    policy = replace(SWAPS, order="priority")
    world = World(seqs=1, block_size=2, budget=4, host_blocks=9, policy=policy)
    world.arrive("same", prompt=prompt, max_tokens=1).run()
    sampling = SamplingParams(max_tokens=1, prompt_logprobs=0)
    world.submit(Request(RequestId("b"), prompt, sampling, 3.0, priority=1))
    world.arrive("urgent", prompt=1, max_tokens=1, at=4).run()
    assert modes(world) == [("b", SWAP)]
    assert world.chunk_sizes("b") == [4, 4, 1]
    assert [plan.entered[0].num_cached_tokens for plan in world.plans[3:] if plan.entered] == [0, 0, 4]


def test_the_time_of_copies_is_learned_apart_from_that_of_the_steps() -> None:
    """Steps take a second, whatever they feed, and copies half a second a block: one is tried, and not worth it."""
    policy = replace(SWAPS, preemption="auto", order="priority")
    world = World(seqs=1, block_size=2, host_blocks=99, prefix_caching=False, policy=policy)
    world.arrive("long", prompt=5, max_tokens=60, priority=1)
    for at in (10, 40, 45, 50, 55, 60):
        world.arrive(f"urgent at {at}", prompt=2, max_tokens=1, at=at)
    shadow = world.execute

    def slowly(plan: StepPlan) -> StepOutcome:
        seconds = 0.5 * (len(plan.swap_out) + len(plan.swap_in))
        world.clock.advance(seconds)
        return shadow(plan)._replace(device_seconds=seconds + 1.0, swap_seconds=seconds)

    world.execute = slowly
    world.run()
    assert_each_said_what_it_says_alone(world)
    assert [mode for _, mode in modes(world)] == [SWAP] + 5 * [RECOMPUTE]
