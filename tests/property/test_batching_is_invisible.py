"""A request says the same in any company: under memory pressure, prefix hits, chunking, displacement and aborts."""

from dataclasses import replace

from hypothesis import event, given, target

from evenflow.core.events import Preempted, Scheduled
from evenflow.core.policy.spec import PolicySpec
from strategies import Scenario, scenarios
from world import assert_each_said_what_it_says_alone


@given(scenarios())
def test_batching_is_invisible(scenario: Scenario) -> None:
    world = scenario.play()
    assert_each_said_what_it_says_alone(world)
    preemptions = len(world.of(Preempted))
    swaps = sum(scheduled.swapped_in_tokens > 0 for scheduled in world.of(Scheduled))
    hits = sum(scheduled.cached_tokens > 0 for scheduled in world.of(Scheduled))
    target(float(preemptions), label="preemptions")
    target(float(swaps), label="swaps")
    target(float(hits), label="prefix hits")
    event("preempts" if preemptions else "never preempts")
    event("swaps" if swaps else "never swaps")
    event("hits the prefix cache" if hits else "never hits the prefix cache")


@given(scenarios())
def test_the_prefix_cache_is_invisible(scenario: Scenario) -> None:
    with_cache = replace(scenario, shape=replace(scenario.shape, prefix_caching=True), aborts=()).play()
    without = replace(scenario, shape=replace(scenario.shape, prefix_caching=False), aborts=()).play()
    assert with_cache.outputs == without.outputs
    assert not any(scheduled.cached_tokens for scheduled in without.of(Scheduled))


@given(scenarios())
def test_first_come_is_first_served(scenario: Scenario) -> None:
    policy = PolicySpec(order="fcfs")
    world = replace(scenario, shape=replace(scenario.shape, policy=policy)).play()
    first_served = [scheduled.request_id for scheduled in world.of(Scheduled) if not scheduled.resumed]
    served = set(first_served)
    assert first_served == [request_id for request_id in world.requests if request_id in served]


@given(scenarios())
def test_the_same_scenario_gives_the_same_log(scenario: Scenario) -> None:
    assert scenario.play().events == scenario.play().events
