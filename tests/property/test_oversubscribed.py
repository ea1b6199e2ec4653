"""Twice as much work as memory: little is computed again, because nobody comes in by the first chunk only."""

import pytest

from evenflow.core.events import Preempted, Scheduled
from evenflow.core.policy.presets import policy_of
from evenflow.core.policy.spec import PolicySpec
from world import World


def oversubscribed(policy: PolicySpec, *, prompt: int, output: int) -> World:
    """Eight requests would fit at their full length, and sixteen have a seat."""
    size = prompt + output
    world = World(blocks=8 * size // 4, block_size=4, budget=64, seqs=16, prefix_caching=False, policy=policy)
    for number in range(48):
        length = prompt + 7 * number % 13 - 6
        world.arrive(f"r{number}", prompt=length, max_tokens=output - number % 5, at=number // 6)
    return world.run()


def recomputed_share(world: World) -> float:
    lost: dict[str, int] = {}
    recomputed = 0
    for event in world.events:
        if isinstance(event, Preempted):
            lost[event.request_id] = event.lost_tokens
        elif isinstance(event, Scheduled) and event.resumed:
            recomputed += lost[event.request_id] - event.cached_tokens
    return recomputed / sum(plan.num_tokens for plan in world.plans)


ALL = ["vllm", "sarathi", "sglang", "fastgen", "evenflow-interactive", "evenflow-throughput", "evenflow-balanced"]


@pytest.mark.parametrize("preset", ALL)
def test_long_prompts_do_not_take_each_others_room_in_turn(preset: str) -> None:
    """If a first chunk were enough to come in, all sixteen would, and each would be evicted before its last chunk."""
    world = oversubscribed(policy_of(preset), prompt=100, output=8)
    assert recomputed_share(world) <= 0.10
    assert max(plan.num_prefill_tokens for plan in world.plans) > 50


@pytest.mark.parametrize("preset", [name for name in ALL if name.startswith("evenflow")])
@pytest.mark.parametrize(("prompt", "output"), [(60, 20), (30, 30), (10, 50)])
def test_who_reserves_the_expected_answer_does_little_work_again(preset: str, prompt: int, output: int) -> None:
    assert recomputed_share(oversubscribed(policy_of(preset), prompt=prompt, output=output)) <= 0.10


def test_memory_does_run_out_there() -> None:
    assert len(oversubscribed(policy_of("vllm"), prompt=30, output=30).of(Preempted)) > 5
