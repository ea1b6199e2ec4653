"""Whatever the policy: a request says what it says alone, every law holds in every step, and every promise is kept.

Laws (laws.py) are checked in every step and promises (facts.py) at the end of every run, so a run that ends has passed.
"""

from collections import Counter
from random import Random

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from evenflow.core.events import Finished, PolicyChanged
from evenflow.core.policy.presets import PRESETS, policy_of
from evenflow.core.request import FinishReason
from strategies import Scenario, Seeded, any_policy, composed, scenario, scenarios
from world import World, assert_each_said_what_it_says_alone

NUM_SCENARIOS = 400

# About half of what the compositions show today.
AT_LEAST = {
    "overtake_seconds": 50,
    "passed_by": 150,
    "somebody was passed": 6,
    "decode_gap_steps": 7,
    "prefill_tokens_per_step": 170,
    "prefill_share": 50,
    "long_prefills": 60,
    "long_prefill_steps": 60,
    "long_prompt_share": 2,
    "memory_preemptions": 45,
    "service_gap": 20,
    "took from another class": 30,
    "batch_max_blocks": 30,
    "batch_max_seats": 30,
    "interactive_max_seats": 10,
    "ended by expired": 120,
    "ended by abort": 70,
    "fairness": 10,
    "quota": 5,
    "reserve": 14,
    "long_prompt": 30,
    "static_batch": 35,
}


def play(scenario: Scenario) -> World:
    world = scenario.play()
    assert_each_said_what_it_says_alone(world)
    return world


@pytest.mark.parametrize("preset", PRESETS)
@settings(max_examples=12)
@given(data=st.data())
def test_every_preset_keeps_what_it_promises(preset: str, data: st.DataObject) -> None:
    play(data.draw(scenarios(policy_of(preset))))


@given(composed())
def test_any_composition_of_pieces_keeps_what_it_promises(scenario: Scenario) -> None:
    play(scenario)


@given(composed(), st.data())
def test_the_policy_may_change_in_the_middle_of_everything(scenario: Scenario, data: st.DataObject) -> None:
    """Each request still gets exactly one end, and says what it says alone."""
    world = scenario.world()
    for time in data.draw(st.lists(st.integers(0, 30), min_size=1, max_size=3)):
        world.change(policy_of(data.draw(st.sampled_from(sorted(PRESETS)))), at=time)
    world.run()
    assert_each_said_what_it_says_alone(world)
    assert len(world.of(Finished)) == len(world.requests)
    event(f"{len(world.of(PolicyChanged))} changes")
    moved = any(change.moved for change in world.of(PolicyChanged))
    event("somebody waits elsewhere" if moved else "everybody waits where they waited")


def sweep(seeds: range) -> Counter[str]:
    """How often each promise was put to the test."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        choices = Seeded(Random(seed))
        world = play(scenario(choices, any_policy(choices)))
        seen += Counter(set(world.facts.seen))
        seen += Counter(f"ended by {reason.value}" for reason in world.reasons.values())
        seen += Counter({door.reason.value for plan in world.plans for door in plan.doors})
        seen["somebody was passed"] += world.facts.worst.get("passed_by", 0) > 0
    return seen


def test_every_promise_is_put_to_the_test() -> None:
    seen = sweep(range(NUM_SCENARIOS))
    assert {name: seen[name] for name, least in AT_LEAST.items() if seen[name] < least} == {}


@pytest.mark.slow
@settings(max_examples=1500)
@given(composed())
def test_many_compositions_keep_what_they_promise(scenario: Scenario) -> None:
    play(scenario)


@pytest.mark.slow
def test_a_long_sweep() -> None:
    assert sweep(range(10_000, 12_000))[f"ended by {FinishReason.EXPIRED.value}"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
def test_a_long_sweep_of_every_preset(preset: str) -> None:
    for seed in range(400):
        play(scenario(Seeded(Random(seed)), policy_of(preset)))
