"""A leap is the steps that it spares, to the bit: results, events, and everything that the engine is left with."""

from random import Random

import pytest

from evenflow.core.events import Event, StepRecord
from evenflow.core.policy.presets import PRESETS
from evenflow.core.policy.spec import PolicySpec
from evenflow.simulate.config import SimulationConfig
from evenflow.simulate.cost import Identity, Kind, Regime, Spread, StepCost
from evenflow.simulate.outcome import Simulation
from evenflow.simulate.run import simulate
from evenflow.workload.trace import PrefixBlocks, TraceRequest

COST = StepCost(
    Identity(Kind.ROOFLINE, "a machine", "a model", "0"),
    weight_seconds=0.01,
    token_seconds=1e-4,
    request_seconds=3e-5,
    decode_context_seconds=1e-6,
    prefill_context_seconds=1e-7,
    gap_seconds=0.0003,
    spreads=(Spread(Regime.DECODE, 0.05, 1), Spread(Regime.MIXED, 0.1, 1)),
)
BLOCK_SIZE = 8


def workload(rng: Random) -> list[TraceRequest]:
    rate = rng.choice([1.0, 5.0, 20.0])
    now, rows = 0.0, []
    for index in range(rng.randrange(15, 40)):
        now += rng.expovariate(rate)
        prompt, output = rng.randrange(1, 120), rng.choice([1, 2, 5, rng.randrange(1, 200)])
        prefix = None
        if rng.random() < 0.5:
            ids = [rng.randrange(3) if place < 3 else 100 * index + place for place in range(-(-prompt // BLOCK_SIZE))]
            prefix = PrefixBlocks(BLOCK_SIZE, tuple(ids))
        parent = f"r{rng.randrange(index)}" if index and rng.random() < 0.2 else None
        rows.append(
            TraceRequest(
                now,
                prompt,
                output,
                name=f"r{index}",
                parent=parent,
                prefix=prefix,
                service_class=rng.choice([None, "interactive", "batch"]),
                tenant=rng.choice([None, "ann", "bob"]),
            )
        )
    return rows


def config(rng: Random, policy: PolicySpec | str) -> SimulationConfig:
    return SimulationConfig(
        policy=policy,
        max_num_seqs=rng.choice([2, 5, 16]),
        max_num_batched_tokens=rng.choice([24, 64, 256]),
        block_size=BLOCK_SIZE,
        num_blocks=rng.choice([48, 64, 200]),
        num_host_blocks=rng.choice([0, 40]),
        prefix_caching=rng.random() < 0.7,
        watermark=rng.choice([0.0, 0.05]),
    )


def run(seed: int, policy: PolicySpec | str, *, leap: bool, keep_events: bool) -> Simulation:
    rng = Random(seed)
    rows = workload(rng)
    return simulate(rows, COST, config(rng, policy), seed=seed, leap=leap, keep_events=keep_events)


def facts(done: Simulation) -> object:
    (replica,) = done.replicas
    return (
        done.result.records,
        list(replica.streams.step_ends),
        done.num_steps,
        done.num_preemptions,
        done.span_seconds,
        replica.pool(),
    )


def records(events: tuple[Event, ...]) -> int:
    return sum(isinstance(event, StepRecord) for event in events)


@pytest.mark.parametrize("policy", PRESETS)
def test_a_leap_has_the_outcome_of_its_steps(policy: str) -> None:
    leapt = preempted = 0
    for seed in range(2):
        stepped, flown = (run(seed, policy, leap=leap, keep_events=False) for leap in (False, True))
        assert facts(stepped) == facts(flown)
        leapt += flown.num_leapt_steps
        preempted += flown.num_preemptions
        assert stepped.num_leapt_steps == 0
    assert leapt > 20
    if PRESETS[policy].choices.get("reserve") is None:
        assert preempted > 0


@pytest.mark.parametrize("interleave", ["decode-first", "prefill-first", "in-order", "shared"])
def test_a_leap_leaves_the_log_of_its_steps(interleave: str) -> None:
    leapt = 0
    for seed in range(10, 12):
        spec = PolicySpec(interleave=interleave, fairness=Random(seed).choice(["none", "vtc"]))
        stepped, flown = (run(seed, spec, leap=leap, keep_events=True) for leap in (False, True))
        assert stepped.events == flown.events
        assert facts(stepped) == facts(flown)
        assert records(flown.events) == flown.num_steps
        leapt += flown.num_leapt_steps
    assert leapt > 20


@pytest.mark.parametrize("budget", ["fixed", "itl-target"])
@pytest.mark.parametrize("scope", ["continuous", "static"])
def test_every_step_that_only_decodes_is_leapt_while_all_seats_are_taken(budget: str, scope: str) -> None:
    """Newcomers find the door shut, some end, and nobody lacks memory: neither ends a leap for good."""
    rng = Random(3)
    rows = [TraceRequest(0.05 * place, rng.randrange(2, 90), rng.randrange(2, 120)) for place in range(60)]
    config = SimulationConfig(
        policy=PolicySpec(budget=budget, scope=scope, itl_target=0.05),
        max_num_seqs=6,
        max_num_batched_tokens=256,
        block_size=BLOCK_SIZE,
        num_blocks=400,
    )
    logged = simulate(rows, COST, config, leap=False, keep_events=True)
    stepped, flown = (simulate(rows, COST, config, leap=leap) for leap in (False, True))
    assert facts(logged) == facts(stepped) == facts(flown)
    steps = [event for event in logged.events if isinstance(event, StepRecord)]
    assert sum(step.waiting > 0 for step in steps) > len(steps) / 2
    assert flown.num_leapt_steps == sum(step.prefill_tokens == 0 for step in steps)
