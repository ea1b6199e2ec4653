"""The cost once more, from the logs of live runs."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from evenflow.observe.log import EventLogWriter
from evenflow.replay.request import PlannedRequest
from evenflow.simulate.config import SimulationConfig
from evenflow.simulate.cost import Bounds, StepCost, StepFeatures
from evenflow.simulate.cost_file import load_cost
from evenflow.simulate.run import simulate
from evenflow.tune.refit import refitted
from tuning_runs import device

BEFORE = replace(
    device(),
    hull=(
        Bounds("num_tokens", 1, 4096),
        Bounds("prefill_tokens", 0, 4096),
        Bounds("decode_tokens", 0, 256),
        Bounds("prefill_context", 0, 4_000_000),
        Bounds("decode_context", 0, 1_000_000),
        Bounds("num_scheduled", 1, 257),
    ),
)


def log_of(cost: StepCost, path: Path, num: int = 24) -> Path:
    rng = Random(3)
    plans = [PlannedRequest(i, f"r{i}", i * 0.2, rng.randrange(50, 600), rng.randrange(5, 60)) for i in range(num)]
    with EventLogWriter(path) as writer:
        config = SimulationConfig(policy="vllm", num_blocks=2000, max_num_batched_tokens=256)
        simulate(plans, cost, config, sink=lambda replica, events: writer.write(events))
    return path


def test_it_says_what_the_runs_took_and_beyond_them_the_old_cost_as_far_as_it_was_off(tmp_path: Path) -> None:
    slower = replace(
        BEFORE,
        fixed_seconds=1.5 * BEFORE.fixed_seconds,
        weight_seconds=1.5 * BEFORE.weight_seconds,
        token_seconds=1.5 * BEFORE.token_seconds,
        request_seconds=1.5 * BEFORE.request_seconds,
        prefill_context_seconds=1.5 * BEFORE.prefill_context_seconds,
        decode_context_seconds=1.5 * BEFORE.decode_context_seconds,
    )
    found = refitted([log_of(slower, tmp_path / "log.jsonl")], BEFORE, tmp_path / "cost.json")
    assert found is not None
    assert load_cost(tmp_path / "cost.json").token_seconds == found.token_seconds
    seen, unseen = StepFeatures(200, 3, 30_000, 1_000, 4), StepFeatures(4000, 0, 3_900_000, 0, 1)
    assert found.seconds(seen) == pytest.approx(1.5 * BEFORE.seconds(seen), rel=0.05)
    assert found.seconds(unseen) == pytest.approx(1.5 * BEFORE.seconds(unseen), rel=0.25), "the old cost is off by 33 %"
    assert not found.outside_hull(unseen)
    assert found.kv_tokens == BEFORE.kv_tokens
    assert any("refitted to" in note for note in found.notes)


def test_few_steps_leave_the_cost_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "no.jsonl").write_text("not a log\n")
    assert refitted([tmp_path / "no.jsonl"], BEFORE, tmp_path / "cost.json") is None
    assert refitted([log_of(BEFORE, tmp_path / "log.jsonl", num=1)], BEFORE, tmp_path / "cost.json") is None
    assert not (tmp_path / "cost.json").exists()
