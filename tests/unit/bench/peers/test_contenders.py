"""The table of contenders: what comes with evenflow, and what a user can get wrong in his own."""

import sys
from pathlib import Path

import pytest

from evenflow.bench.peers.contenders import (
    STANDARD_TABLE,
    Place,
    Precision,
    Workload,
    read_contenders,
)
from evenflow.core.errors import ConfigError

MODEL = Path("/models/small.gguf")
NAMES = [
    "evenflow-int8",
    "evenflow-int8-kv8",
    "evenflow-bf16",
    "vllm-int8",
    "vllm-bf16",
    "openvino-int8",
    "openvino-bf16",
    "llama-q4",
    "llama-q8",
    "llama-bf16",
    "llama-q8-long",
    "llama-bf16-long",
    "transformers-bf16",
]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Every file that the standard table needs."""
    for python in ("vllm", "ov", "hf"):
        (tmp_path / python / "bin").mkdir(parents=True)
        (tmp_path / python / "bin" / "python").touch()
    (tmp_path / "llama/build/bin").mkdir(parents=True)
    (tmp_path / "llama/build/bin/llama-server").touch()
    (tmp_path / "models").mkdir()
    for model in ("w8a8", "hf", "ov-int8", "ov-fp16", "Q4_0.gguf", "Q8_0.gguf", "BF16.gguf"):
        (tmp_path / "models" / f"smollm2-135m-{model}").touch()
    return tmp_path


def test_all_of_the_standard_table_runs_where_all_is_installed(installed: Path) -> None:
    contenders, left_out = read_contenders(STANDARD_TABLE, Place(installed, MODEL, (2, 5)))
    assert [contender.name for contender in contenders] == NAMES
    assert left_out == []
    for contender in contenders:
        for launch in (contender.piped, contender.served):
            if launch is not None:
                words = " ".join((*launch.command, *launch.environment.values()))
                assert "{port}" in words or launch is contender.piped
                assert "{port}" not in " ".join(launch.at_port(8123).command)
                assert launch.environment["OMP_NUM_THREADS"] == "2"
    vllm = next(contender for contender in contenders if contender.name == "vllm-int8")
    assert vllm.piped is not None
    assert vllm.served is not None
    assert vllm.piped.environment["KMP_AFFINITY"].endswith("proclist=[2,5]")
    assert "KMP_AFFINITY" not in vllm.served.environment
    assert (vllm.precision, vllm.pin_server_threads) == (Precision.INT8, True)


def test_without_a_folder_of_peers_only_evenflow_runs_and_each_other_says_why() -> None:
    contenders, left_out = read_contenders(STANDARD_TABLE, Place(None, MODEL, (0,)))
    ours, peers = ([name for name in NAMES if name.startswith("evenflow") is own] for own in (True, False))
    assert [contender.name for contender in contenders] == ours
    assert [each.name for each in left_out] == peers
    assert all("--peers-dir" in each.reason and "docs/benchmarks.md" in each.reason for each in left_out)


def test_what_is_missing_is_named(installed: Path) -> None:
    (installed / "models/smollm2-135m-Q4_0.gguf").unlink()
    _, left_out = read_contenders(STANDARD_TABLE, Place(installed, MODEL, (0,)))
    [missing] = left_out
    assert missing.name == "llama-q4"
    assert str(installed / "models/smollm2-135m-Q4_0.gguf") in missing.reason


def test_the_standard_table_names_nothing_of_any_machine() -> None:
    assert not [line for line in STANDARD_TABLE.read_text().splitlines() if '"/' in line and '"/ready"' not in line]


def test_a_peer_does_not_see_our_packages(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/ours")
    monkeypatch.setenv("VIRTUAL_ENV", "/ours")
    for contender in read_contenders(STANDARD_TABLE, Place(installed, MODEL, (0,)))[0]:
        launch = contender.piped or contender.served
        assert launch is not None
        assert ("PYTHONPATH" in launch.environment) == (contender.engine == "evenflow")


ROW = """
[mine]
engine = "mine"
precision = "bf16"
workloads = ["w1"]
"""


def test_a_table_of_ones_own(tmp_path: Path) -> None:
    table = tmp_path / "mine.toml"
    table.write_text(ROW + 'piped = ["{python}", "{drivers}/x.py", "{model}", "{threads}"]\nmost_requests = 8\n')
    [[mine], _] = read_contenders(table, Place(None, MODEL, (0, 1, 2)))
    assert mine.piped is not None
    assert mine.piped.command == (sys.executable, str(STANDARD_TABLE.with_name("x.py")), str(MODEL), "3")
    assert (mine.workloads, mine.most_requests, mine.served) == (frozenset({Workload.W1}), 8, None)


@pytest.mark.parametrize(
    ("text", "saying"),
    [
        ("[mine", "is not a table of contenders"),
        (ROW + 'pipe = ["x"]', "unknown field `pipe`"),
        (ROW.replace("bf16", "fp8") + 'piped = ["x"]', "'fp8'"),
        (ROW + "piped = []", "length >= 1"),
        (ROW, r"\[mine\]: give it a command"),
        (ROW.replace("w1", "w3") + 'piped = ["x"]', r"\[mine\]: w3 goes through HTTP"),
        (ROW + 'piped = ["{prot}"]', r"\[mine\]: 'prot' cannot be filled in; there are {peers}, {model}"),
        (ROW + 'piped = ["{}"]', "cannot be filled in"),
        (ROW + 'piped = ["{"]', "cannot be filled in"),
        (ROW + 'piped = ["x"]\nmost_requests = 0', ">= 1"),
    ],
)
def test_a_wrong_table_is_refused_with_what_is_wrong(tmp_path: Path, text: str, saying: str) -> None:
    table = tmp_path / "mine.toml"
    table.write_text(text)
    with pytest.raises(ConfigError, match=saying) as refused:
        read_contenders(table, Place(None, MODEL, (0,)))
    assert str(table) in str(refused.value)


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the table .*none\.toml: No such file"):
        read_contenders(tmp_path / "none.toml", Place(None, MODEL, (0,)))
