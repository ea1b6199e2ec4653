"""How fast the machine was, from a log."""

from dataclasses import replace
from math import exp
from pathlib import Path
from random import Random

import pytest

from evenflow.observe.log import EventLogWriter
from evenflow.replay.request import PlannedRequest
from evenflow.simulate.config import SimulationConfig
from evenflow.simulate.cost import Knot, StepCost, StepFeatures
from evenflow.simulate.run import simulate
from evenflow.tune.grid import Load
from evenflow.tune.objective import parse_goal
from evenflow.tune.pace import at_pace, expected, pace_of
from tuning_runs import device

COST = replace(device(), knots=(Knot(0.0, 1e-4), Knot(8.0, 3e-4)), gap_seconds=1e-4)
CONFIG = SimulationConfig(policy="vllm", num_blocks=2000, max_num_batched_tokens=256, max_num_seqs=4)
GOAL = parse_goal("e2e_mean", None)


def plans(gap: float) -> tuple[PlannedRequest, ...]:
    rng = Random(3)
    return tuple(PlannedRequest(i, f"r{i}", i * gap, rng.randrange(50, 600), rng.randrange(5, 60)) for i in range(24))


def log_of(cost: StepCost, path: Path) -> Path:
    with EventLogWriter(path) as writer:
        simulate(plans(0.1), cost, CONFIG, sink=lambda replica, events: writer.write(events))
    return path


def test_a_slower_machine_is_slower_by_its_streams_alone(tmp_path: Path) -> None:
    log = log_of(at_pace(COST, 1.4), tmp_path / "log.jsonl")
    assert pace_of(log, COST) == pytest.approx(1.4, rel=1e-3)
    wrong_about_chunks = replace(COST, prefill_context_seconds=1e3 * COST.prefill_context_seconds)
    assert pace_of(log, wrong_about_chunks) == pytest.approx(1.4, rel=1e-3)


def test_a_log_that_says_too_little_has_no_pace(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    assert pace_of(tmp_path / "empty.jsonl", COST) is None
    assert pace_of(tmp_path / "none.jsonl", COST) is None


def test_every_part_of_a_step_takes_longer() -> None:
    features = StepFeatures(300, 4, 60_000, 2_000, 6)
    assert at_pace(COST, 1.7).seconds(features) == pytest.approx(1.7 * COST.seconds(features))


def test_a_queue_makes_more_of_a_slow_machine_than_it_is() -> None:
    """The same requests seldom and often: alone a slow machine is as much later as it is slow."""
    runs = [(CONFIG, 1.1), (CONFIG, 1 / 1.1)]
    done = {}
    for gap in (5.0, 0.05):
        found = expected(runs, COST, Load(plans(gap), 0.0, 1), GOAL)
        assert found is not None
        assert found[1] < 0.0 < found[0]
        done[gap] = exp(found[0])
    assert done[5.0] == pytest.approx(1.1, rel=0.02)
    assert done[0.05] > 1.2
