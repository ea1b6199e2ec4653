"""What the policy experiments stand on: engines that play in turns, and figures that know what was asked of them."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from evenflow.bench.policies import oversubscribed
from evenflow.bench.policies.experiment import Figure
from evenflow.bench.policies.play import Played, play, play_in_turns
from evenflow.bench.policies.table import EXPERIMENTS
from evenflow.core.events import Arrived, Finished, StepRecord
from evenflow.core.policy.spec import PolicySpec
from evenflow.core.request import Request, RequestId, SamplingParams
from evenflow.engine.build import assemble
from evenflow.engine.config import Capabilities, Dtype, EngineConfig, resolve
from evenflow.engine.core import EngineCore
from evenflow.executors.shadow import ShadowExecutor
from tiny_models import tiny_model

MACHINE = Capabilities(max_position_embeddings=64, vocab_size=100, bytes_per_block=1, free_memory=1000)


def engine(blocks: int) -> EngineCore:
    config = EngineConfig(block_size=4, kv_memory=str(blocks), host_kv_memory="100", max_num_batched_tokens=16)
    resolved = resolve(config, MACHINE)
    executor = ShadowExecutor(num_blocks=blocks, block_size=4, vocab_size=100, num_host_blocks=100)
    return assemble(resolved, executor, policy=PolicySpec(preemption="swap"))


def load(count: int, *, spacing: float = 0.0) -> list[Request]:
    sampling = SamplingParams(max_tokens=9, ignore_eos=True)
    return [
        Request(RequestId(f"r{i}"), tuple(range(i, i + 6)), sampling, arrival_time=spacing * i) for i in range(count)
    ]


def finished(played: Played) -> dict[str, int]:
    return {event.request_id: event.num_output_tokens for event in played.events if isinstance(event, Finished)}


@pytest.mark.parametrize(
    ("figure", "met", "asked"),
    [
        (Figure("speed", 0.9, at_least=0.9), True, "at least 0.9"),
        (Figure("speed", 0.899, at_least=0.9), False, "at least 0.9"),
        (Figure("waste", 0.1, at_most=0.1), True, "at most 0.1"),
        (Figure("waste", 0.101, at_most=0.1), False, "at most 0.1"),
        (Figure("both", 0.5, at_least=0.4, at_most=0.6), True, "at least 0.4 and at most 0.6"),
        (Figure("neither", 0.5), True, ""),
    ],
)
def test_a_figure_knows_what_was_asked_and_whether_it_is_met(figure: Figure, met: bool, asked: str) -> None:
    assert (figure.met, figure.asked) == (met, asked)


def test_a_load_is_played_to_its_end_and_arrives_when_it_says() -> None:
    played = play(engine(40), load(4, spacing=0.01))
    assert finished(played) == {f"r{i}": 9 for i in range(4)}
    arrivals = [event.time for event in played.events if isinstance(event, Arrived)]
    assert [later - arrivals[0] for later in arrivals] == pytest.approx([0.0, 0.01, 0.02, 0.03])
    assert played.seconds >= 0.03


def test_engines_that_play_in_turns_each_play_everything() -> None:
    engines = {"roomy": engine(40), "tight": engine(8)}
    played = play_in_turns(engines, load(6))
    for each in played.values():
        assert finished(each) == {f"r{i}": 9 for i in range(6)}
        assert 0 < sum(step.end - step.start for step in _steps(each)) <= each.seconds
    assert sum(step.preemptions for step in _steps(played["roomy"])) == 0
    assert sum(step.preemptions for step in _steps(played["tight"])) > 0
    # Turns go by tokens given, so both are at work for as long as they can be.
    starts = sorted((step.start, name) for name, each in played.items() for step in _steps(each))
    assert {name for _, name in starts[:4]} == set(engines)


def _steps(played: Played) -> Sequence[StepRecord]:
    return [event for event in played.events if isinstance(event, StepRecord)]


@pytest.mark.slow
def test_preemption_is_measured_where_memory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a tiny model, for what it counts and not for what it times."""
    tiny_model("llama").save_pretrained(tmp_path)
    monkeypatch.setattr(oversubscribed, "SEATS", 6)
    monkeypatch.setattr(oversubscribed, "REQUESTS", 12)
    monkeypatch.setattr(oversubscribed, "PROMPT_TOKENS", (24, 72))
    config = EngineConfig(model=str(tmp_path), dtype=Dtype.FP32, threads=1, block_size=16)
    finding = EXPERIMENTS["oversubscribed"].measure(config, rounds=1, progress=lambda what: None)
    rows = {dict(row)["engine"]: dict(row) for row in finding.rows}
    assert list(rows) == ["recompute", "swap", "auto", "enough KV"]
    assert all(int(rows[name]["preemptions"]) > 0 for name in ("recompute", "swap", "auto"))
    assert rows["enough KV"]["preemptions"] == "0"
    assert int(rows["swap"]["blocks copied"]) > 0 == int(rows["recompute"]["blocks copied"])
    assert rows["swap"]["computed tokens"] == rows["enough KV"]["computed tokens"]
    assert int(rows["recompute"]["computed tokens"]) > int(rows["swap"]["computed tokens"])
    assert all(figure.value >= 0 for figure in finding.figures)
