"""`evenflow study` from the command line: simulated, and on a live engine."""

from pathlib import Path

import pytest

from evenflow.cli.main import main
from evenflow.engine.config import EngineConfig
from evenflow.models.source import resolve_model
from evenflow.models.tokenizer import load_tokenizer
from evenflow.study.live_lab import LiveLab
from evenflow.tune.settings import Settings
from evenflow.workload.trace import TraceRequest


def test_an_experiment_is_shown_and_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["study", "chunk-size", "--size", "0.1", "--out", str(tmp_path)])
    assert ended.value.code == 0
    said = capfd.readouterr()
    assert "holds every stream up for" in said.out
    assert "do not bear" not in said.out
    assert "## 1. In what pieces" in (tmp_path / "study.md").read_text()
    assert (tmp_path / "study" / "chunk-size.svg").read_text().startswith("<svg")


def test_an_experiment_that_there_is_not_is_status_2(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["study", "chunksize"])
    assert ended.value.code == 2
    assert "did you mean chunk-size?" in capfd.readouterr().err


def test_a_flag_of_the_real_engine_is_not_ignored_by_a_simulation(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["study", "chunk-size", "--kv-memory", "64MiB"])
    assert ended.value.code == 2
    assert "--kv-memory is of a real engine; add --live" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.model
def test_a_live_lab_plays_a_load_on_a_server_and_counts_its_preemptions() -> None:
    path = resolve_model("smollm2-135m")
    # Two requests come to want 16 blocks of 32 tokens, and there are 12 or so.
    told: list[str] = []
    lab = LiveLab(EngineConfig(model=str(path), kv_memory="9MiB"), load_tokenizer(path), tell=told.append)
    load = [TraceRequest(0.0, 32, 224), TraceRequest(0.1, 32, 224)]
    played = lab.play(load, Settings(256, 8, 1.0, "vllm", ("reserve=prompt",)))
    assert sorted(record.num_output_tokens or 0 for record in played.records()) == [224, 224]
    assert played.num_preemptions >= 1
    assert told == ["2 requests to a server with 8 seats, 256 tokens a step, vllm"]
    assert lab.with_host_memory(1.0) is None
