"""`evenflow simulate`, `costs`, `validate` and `calibrate` as a user calls them."""

from pathlib import Path

import pytest

from evenflow.cli.main import main
from evenflow.replay.result import read_result
from evenflow.simulate.cost_file import load_cost

TRACE = "src/evenflow/workload/data/azure_conv_excerpt.csv"
COST = "h100-80gb-x8-llama2-70b"


def called(*arguments: str) -> int:
    try:
        main(list(arguments))
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.fixture
def trace() -> str:
    return str(Path(__file__).parents[3] / TRACE)


def test_a_trace_is_simulated_logged_and_validated(
    tmp_path: Path, trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out, log = tmp_path / "run", tmp_path / "run.log"
    settings = "max_num_seqs=8,policy=vllm,num_blocks=2000"
    arguments = ["--trace", trace, "--cost", COST, "--limit", "30", "--set", settings, "--slo", "ttft=1s"]
    assert called("simulate", *arguments, "--out", str(out), "--log", str(log)) == 0
    assert "steps (" in capsys.readouterr().out
    assert len(read_result(tmp_path / "run.json").records) == 30
    assert (tmp_path / "run.html").exists()
    assert called("validate", str(log), "--recorded") == 0
    assert "decided again as they were live (30 requests" in capsys.readouterr().out
    assert called("validate", str(log), "--cost", COST, "--groups") == 0
    said = capsys.readouterr().out
    assert "+0.0%" in said
    assert "the machine was as fast as the cost says, 0.99 to 1.01 times" in said
    assert called("calibrate", "--log", str(log), "--out", str(tmp_path / "cost.json")) == 0
    assert load_cost(tmp_path / "cost.json").kv_tokens == 2000 * 32


def test_several_replicas_have_a_log_each(tmp_path: Path, trace: str) -> None:
    log = tmp_path / "run.log"
    more = ["--replicas", "2", "--router", "least-outstanding-tokens", "--out", str(tmp_path / "run")]
    assert called("simulate", "--trace", trace, "--cost", COST, "--limit", "10", "--log", str(log), *more) == 0
    assert {each.name for each in tmp_path.glob("*.log")} == {"run.0.log", "run.1.log"}


def test_ready_made_costs_are_listed_with_how_good_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert called("costs") == 0
    assert COST in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--cost", "abacus"], "there is no cost 'abacus'"),
        (["--cost", COST, "--set", "speed=3"], "a setting is written name=value"),
        (["--cost", COST, "--router", "magic", "--replicas", "2"], "router must be one of"),
        (["--cost", COST, "--slo", "beauty=1s"], "beauty"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(
    tmp_path: Path, trace: str, capsys: pytest.CaptureFixture[str], more: list[str], said: str
) -> None:
    assert called("simulate", "--trace", trace, "--out", str(tmp_path / "x"), *more) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--out", "--log"])
def test_what_is_read_is_not_written_over(flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"arrival_s":0,"input_tokens":1,"output_tokens":1}\n')
    before = path.read_text()
    places = {"--out": str(tmp_path / "r"), flag: str(path)}
    arguments = ["--trace", str(path), "--cost", COST, *(word for place in places.items() for word in place)]
    assert called("simulate", *arguments) == 2
    said = capsys.readouterr().err
    assert "would replace what is read" in said or "is not an event log" in said
    assert path.read_text() == before


def test_a_place_where_nothing_can_be_written_is_told_before_the_work(
    tmp_path: Path, trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "r.json").mkdir()
    assert called("simulate", "--trace", trace, "--cost", COST, "--out", str(tmp_path / "r")) == 2
    assert "r.json cannot be written (Is a directory); give another --out" in capsys.readouterr().err
    assert called("calibrate", "--seconds", "inf", "--model", "no", "--out", str(tmp_path / "r.json")) == 2
    assert "r.json cannot be written (Is a directory)" in capsys.readouterr().err


def test_a_negative_seed_of_the_scatter_is_refused(
    tmp_path: Path, trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--trace", trace, "--cost", COST, "--out", str(tmp_path / "r"), "--scatter-seed=-1"]
    assert called("simulate", *arguments) == 2
    assert "a seed must be 0 or more, not -1" in capsys.readouterr().err


@pytest.mark.parametrize("setting", ["num_blocks", "num_host_blocks", "max_num_seqs", "block_size", "max_model_len"])
def test_more_than_any_machine_has_is_refused(
    setting: str, tmp_path: Path, trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--trace", trace, "--cost", COST, "--out", str(tmp_path / "r"), "--set", f"{setting}={10**20}"]
    assert called("simulate", *arguments) == 2
    assert f"{setting} must be" in capsys.readouterr().err
