"""`evenflow bench peers` as a user runs it: evenflow on a tiny model, a scripted peer, one that fails, one missing."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from evenflow.cli.main import main
from evenflow.kernels.native import load_kernels
from evenflow.workload.peer_format import PeerRequest, PeerWorkload, write_workload
from tiny_models import VOCAB_SIZE, tiny_model

SCRIPTS = Path(__file__).parents[1] / "unit/bench/peers"
TABLE = f"""
[evenflow-int8]
engine = "evenflow"
precision = "int8"
workloads = ["w1", "w2", "long", "context"]
piped = ["{{python}}", "-m", "evenflow.bench.peers.evenflow_driver", "--model", "{{model}}", "--dtype", "bf16",
    "--quantize", "int8", "--threads", "{{threads}}", "--kv-memory", "8MiB", "--no-prefix-caching"]

[scripted]
engine = "scripted"
precision = "int8"
workloads = ["w1", "w2", "w3", "long"]
served = ["{{python}}", "{SCRIPTS}/scripted_server.py", "{{port}}", "right"]
ready = "/ready"

[broken]
engine = "scripted"
precision = "bf16"
workloads = ["w1"]
piped = ["{{python}}", "{SCRIPTS}/scripted_driver.py", "{{drivers}}", "short"]

[absent]
engine = "absent"
precision = "bf16"
workloads = ["w1"]
needs = ["{{peers}}/absent"]
served = ["{{peers}}/absent", "{{port}}"]
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_model("llama").save_pretrained(folder)
    words = {f"w{index}": index for index in range(VOCAB_SIZE)}
    Tokenizer(WordLevel(words, unk_token="w0")).save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """A workload and a table, as flags."""
    requests = tuple(PeerRequest(i, "", tuple((7 * i + k) % VOCAB_SIZE for k in range(20)), 9) for i in range(12))
    workload = PeerWorkload(0, requests, requests[:1], requests[:9], (0.0, *[1.0] * 8))
    write_workload(workload, tmp_path / "work.json")
    (tmp_path / "table.toml").write_text(TABLE)
    return {"--table": str(tmp_path / "table.toml"), "--workload-file": str(tmp_path / "work.json"), "--threads": "1"}


def status_of(model: Path, flags: dict[str, str], *more: str) -> object:
    words = [word for flag in flags.items() for word in flag]
    with pytest.raises(SystemExit) as ended:
        main(["bench", "peers", "--quick", "--model", str(model), *words, *more])
    return ended.value.code


@pytest.mark.slow
def test_everybody_has_a_row_and_ratios_follow(
    model: Path, files: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert status_of(model, files, "--rates", "0.5", "--json") == 1, "one contender failed"
    said = capfd.readouterr()
    found: dict[str, Any] = json.loads(said.out)
    ours, scripted, broken = found["entries"]
    assert (ours["w1"]["output_tokens"], scripted["w1"]["output_tokens"]) == (72, 72)
    assert ours["w1"]["steps"] > 0
    assert [time["context"] for time in ours["context"]] == [100, 200]
    assert broken["failure"] == "12 output tokens instead of 16; 4 of 4 requests differ"
    assert [each["name"] for each in found["left_out"]] == ["absent"]
    assert list(scripted["online"]) == ["0.5"]
    assert scripted["online"]["0.5"]["ttft"]["num_observations"] == 8
    assert found["peak_rate"] == pytest.approx(scripted["w1"]["requests_per_second"])
    w1 = next(ratio for ratio in found["ratios"] if ratio["what"] == "W1 output tokens/s, any precision")
    assert w1["rival"] == "scripted"
    assert w1["ratio"] == pytest.approx(w1["own_figure"] / w1["rival_figure"])
    if load_kernels().table is not None:
        assert ours["w1"]["share_of_products"] > 0.0
    assert "starting evenflow-int8" in said.err
    assert sys.executable not in said.out, "nothing of the commands and their environment"


@pytest.mark.slow
def test_the_tables_name_everybody(model: Path, files: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    assert status_of(model, files, "--workloads", "w1", "w2", "w3", "--only", "scripted", "absent") == 0
    said = capfd.readouterr().out
    assert "these figures mean nothing" in said
    assert len([line for line in said.splitlines() if line.strip().startswith("scripted")]) == 3, "w3 has two rates"
    assert "absent was left out: no folder of peers was given" in said


@pytest.mark.parametrize(
    ("flag", "value", "saying"),
    [
        ("--only", "vlm", "vlm is not in the table of contenders; there are absent, broken"),
        ("--workloads", "w3", "give peak_rate"),
        ("--threads", "4096", "threads must be at most"),
        ("--table", "none.toml", "cannot read the table none.toml"),
    ],
)
def test_what_cannot_be_done_is_said(
    model: Path, files: dict[str, str], flag: str, value: str, saying: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert status_of(model, files | {flag: value}) == 2
    assert saying in capfd.readouterr().err
