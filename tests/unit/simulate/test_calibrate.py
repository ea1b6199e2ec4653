"""A calibration of an engine whose cost is known: it goes everywhere, and finds that cost again."""

from dataclasses import replace

import numpy as np
import pytest

from evenflow.core.plan import StepPlan
from evenflow.engine.api import EngineFacts
from evenflow.engine.build import assemble
from evenflow.engine.clock import VirtualClock
from evenflow.executors.simulated import SimulatedExecutor
from evenflow.simulate.calibrate import Calibration
from evenflow.simulate.config import SimulationConfig
from evenflow.simulate.cost import Drift, Identity, Kind, Regime, Spread, StepCost, StepFeatures
from evenflow.simulate.excite import turns
from evenflow.simulate.timing import StepTimer

SEATS, BUDGET, LONGEST = 32, 256, 4096
TRUTH = StepCost(
    Identity(Kind.ROOFLINE, "a machine", "a model", "0"),
    fixed_seconds=0.002,
    weight_seconds=0.004,
    token_seconds=1e-4,
    request_seconds=1e-5,
    prefill_context_seconds=1e-7,
    decode_context_seconds=1e-6,
    prefill_read_seconds=1e-6,
    gap_seconds=0.0003,
    spreads=tuple(Spread(regime, 0.1, 1) for regime in Regime),
    drift=Drift(0.8, 40.0),
)


def calibrated(truth: StepCost, seconds: float) -> tuple[StepCost, int]:
    """The cost, and how many steps it was found in."""
    clock, timer, num_steps = VirtualClock(), StepTimer(truth, (1, 2)), 0

    def step_seconds(plan: StepPlan) -> float:
        nonlocal num_steps
        num_steps += 1
        return timer.step_seconds(plan)

    config = SimulationConfig(
        policy="vllm", max_num_seqs=SEATS, max_num_batched_tokens=BUDGET, num_blocks=4096, max_model_len=LONGEST
    )
    resolved = replace(config.resolve(None), vocab_size=1000)
    core = assemble(resolved, SimulatedExecutor(step_seconds, clock.advance), clock=clock)
    facts = EngineFacts(LONGEST, 1000, resolved.num_blocks, resolved.block_size, SEATS, BUDGET)
    calibration = Calibration(core, facts, "a model", clock=clock)
    for _ in range(2):
        calibration.learn(seconds * 0.4)
        calibration.hold_out(seconds * 0.1)
    return calibration.fit(), num_steps


@pytest.fixture(scope="module")
def found() -> StepCost:
    return calibrated(TRUTH, 50.0)[0]


def test_every_turn_is_within_what_the_engine_takes_and_some_are_at_its_ends() -> None:
    several = [turn for turn, _ in zip(turns(SEATS, BUDGET), range(40), strict=False)]
    assert all(1 <= turn.num_streams <= SEATS and turn.num_streams < turn.budget <= BUDGET for turn in several)
    assert any(turn.num_streams == SEATS and turn.context_share == 1.0 for turn in several)
    assert any(turn.num_streams == SEATS and turn.context_share < 0.3 for turn in several)
    assert any(turn.num_streams <= 2 and turn.context_share == 1.0 for turn in several)


def test_a_calibration_reaches_all_seats_with_long_contexts_and_whole_chunks_at_the_end_of_one(
    found: StepCost,
) -> None:
    high = {bounds.feature: bounds.high for bounds in found.hull}
    assert high["decode_tokens"] == SEATS
    assert high["num_tokens"] == BUDGET
    assert high["decode_context"] > SEATS * 500
    assert high["prefill_context"] > BUDGET * LONGEST / 2


def test_it_finds_the_cost_of_steps_that_it_never_saw_through_the_drift(found: StepCost) -> None:
    for unseen in (
        StepFeatures(0, 3, 0, 900, 3),
        StepFeatures(0, 30, 0, 30_000, 30),
        StepFeatures(200, 10, 200 * 1500, 4000, 11),
        StepFeatures(256, 0, 256 * 3000, 0, 1),
    ):
        assert found.seconds(unseen) == pytest.approx(TRUTH.seconds(unseen), rel=0.12)


def test_it_finds_how_steps_scatter_and_that_neighbours_do_so_together(found: StepCost) -> None:
    assert found.drift is not None
    assert found.drift.share == pytest.approx(0.8, abs=0.15)
    assert 10.0 < found.drift.num_steps < 160.0
    for regime in (Regime.DECODE, Regime.MIXED):
        assert found.sigma(regime) == pytest.approx(0.1, rel=0.35)
        assert len(found.spread(regime).factors) > 0


def test_without_a_drift_none_is_found() -> None:
    still = replace(TRUTH, drift=None)
    found, num_steps = calibrated(still, 20.0)
    assert found.drift is None or found.drift.share < 0.3
    assert num_steps > 300
    assert np.isclose(
        found.seconds(StepFeatures(0, 8, 0, 4000, 8)), still.seconds(StepFeatures(0, 8, 0, 4000, 8)), rtol=0.05
    )
