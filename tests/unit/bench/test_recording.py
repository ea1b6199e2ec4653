"""The bench of recording counts what it says it counts; what it times is its own affair."""

from pathlib import Path

import pytest

from evenflow.bench import recorder, recording
from evenflow.bench.recorder import by_step, replayed
from evenflow.bench.recording import RecordingCost, measure
from evenflow.bench.served_recording import MOST_LOSS, MOST_MICROSECONDS
from evenflow.core.events import Finished, StepRecord
from evenflow.engine.config import Dtype, EngineConfig
from evenflow.observe.log import read_log
from evenflow.workload.peer_format import PeerRequest
from recording import busy_runs, flat
from tiny_models import tiny_model


@pytest.mark.parametrize(
    ("loss", "us_per_step", "met"),
    [
        (MOST_LOSS, MOST_MICROSECONDS, True),
        (MOST_LOSS + 0.001, 1.0, False),
        (0.0, MOST_MICROSECONDS + 0.1, False),
        (-0.01, 1.0, True),
    ],
)
def test_both_limits_must_be_met(loss: float, us_per_step: float, met: bool) -> None:
    assert RecordingCost(1, 10, 100.0, 100.0, loss, us_per_step, 1.0, 1.0, 200.0).met is met


@pytest.mark.parametrize("cold", [False, True])
def test_recorded_events_are_fed_again_as_they_were(
    cold: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "_SWEPT_BYTES", 8)
    steps = by_step(flat(busy_runs(1)[0]))
    assert len(steps) > 10
    assert all([isinstance(event, StepRecord) for event in step].index(True) == len(step) - 1 for step in steps)
    log_us, folds_us = replayed(steps, tmp_path / "again.jsonl", goes=1, cold=cold)
    with read_log(tmp_path / "again.jsonl") as log:
        assert list(log) == flat(steps)
    assert min(log_us, folds_us) > 0.0


@pytest.mark.slow
def test_both_engines_play_the_whole_load_and_one_writes_it_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_model("llama").save_pretrained(tmp_path)
    monkeypatch.setattr(recording, "warm_up", lambda *_: None)
    config = EngineConfig(model=str(tmp_path), dtype=Dtype.FP32, threads=1, block_size=16, kv_memory="4MiB")
    load = [PeerRequest(n, "", tuple(range(n, n + 20)), 12) for n in range(6)]
    cost = measure(config, load, tmp_path / "run.jsonl", rounds=2)
    with read_log(tmp_path / "run.jsonl") as log:
        events = list(log)
    steps = [event for event in events if isinstance(event, StepRecord)]
    assert cost.rounds == 2
    assert cost.steps == len(steps) >= 12
    assert [event.num_output_tokens for event in events if isinstance(event, Finished)] == [12] * 6
    assert cost.log_bytes_per_step > 100
    assert cost.us_per_step > max(cost.log_us_per_step, cost.folds_us_per_step) > 0.0
    assert cost.plain_tokens_per_second > 0.0
    assert cost.decode_tokens == 6
    assert min(cost.decode_us_per_step, cost.warm_us_per_step, cost.cold_us_per_step) > 0.0
