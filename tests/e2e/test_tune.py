"""`evenflow tune` from the command line to a configuration that a server starts with."""

import json
from pathlib import Path

import pytest

from evenflow.cli.main import main
from evenflow.replay.server_process import server_process

TRACE = Path(__file__).parents[1] / "data" / "traces" / "azure_code_excerpt.csv"
COST = ("--cost", "h100-80gb-x4-llama2-70b")
GRID = ("--vary", "max_num_seqs=4,16", "--vary", "max_num_batched_tokens=256", "--vary", "policy=vllm")


def tune(out: Path, *arguments: str) -> int:
    try:
        main(["tune", "--trace", str(TRACE), *COST, *GRID, "--jobs", "1", "--out", str(out), *arguments])
    except SystemExit as ended:
        return int(str(ended.code))
    return 0


def test_a_simulated_search_leaves_a_configuration_and_a_page(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--simulate-only", "--limit", "40", "--slo", "ttft_p50=60s")
    assert tune(tmp_path, *arguments) == 0
    assert "max_num_seqs = " in (tmp_path / "evenflow.toml").read_text()
    assert "<!doctype html>" in (tmp_path / "report.html").read_text()
    said = capfd.readouterr()
    assert "output tokens/s, simulated" in said.out
    assert "2 of 2 configurations" in said.err
    assert tune(tmp_path, *arguments) == 0
    assert "going on with the search" in capfd.readouterr().err


def test_an_interrupted_search_says_how_it_goes_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("evenflow.cli.tune.search", interrupted)
    assert tune(tmp_path, "--simulate-only", "--limit", "40") == 130
    assert f"what was done is kept in {tmp_path}, and the same command goes on" in capfd.readouterr().err


def test_limits_that_nothing_keeps_are_status_1(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert tune(tmp_path, "--simulate-only", "--limit", "40", "--slo", "ttft_p50=1us") == 1
    said = capfd.readouterr().out
    assert "nearest" in said
    assert "out of its reach" in said


@pytest.mark.parametrize(
    ("arguments", "saying"),
    [
        (("--slo", "ttft=1s"), "ttft_p95"),
        (("--objective", "speed"), "an objective is"),
        (("--vary", "seats=3"), "no knob"),
        (("--tolerance", "2"), "tolerance"),
        (("--warm-up", "2h"), "warm_up"),
    ],
    ids=["slo", "objective", "knob", "tolerance", "warm-up"],
)
def test_what_cannot_be_searched_is_status_2(
    arguments: tuple[str, ...], saying: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert tune(tmp_path, "--simulate-only", "--limit", "40", *arguments) == 2
    last = capfd.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("evenflow: ")
    assert saying in last


@pytest.mark.slow
@pytest.mark.model
def test_a_live_search_leaves_a_configuration_that_a_server_starts_with(tmp_path: Path) -> None:
    out = tmp_path / "tuned"
    load = ("--limit", "16", "--length-scale", "0.05", "--rate-scale", "20", "--max-model-len", "1024")
    live = ("--kv-memory", "64MiB", "--max-live", "2", "--max-rounds", "2")
    search = ("--objective", "e2e_mean", "--tolerance", "1", "--vary", "max_num_batched_tokens=16,256")
    assert tune(out, *load, *live, *search) == 0
    did = [json.loads(line)["did"] for line in (out / "journal.jsonl").read_text().splitlines()]
    assert did.count("ran") >= 2
    assert "Predicted and measured" in (out / "report.html").read_text()
    with server_process(["--config", str(out / "evenflow.toml"), "--port", "0"]) as server:
        assert server.url().startswith("http://")
        server.ask_to_end()
        assert server.wait() == 0
