"""The `evenflow` command: what cannot be done is said in one sentence, with status 2; the rest ends with status 0."""

import json
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import gguf
import httpx
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from evenflow.bench.front import WARM_UP_REQUESTS, front_cost, measure
from evenflow.cli.main import app, main
from evenflow.models.source import resolve_model
from evenflow.workload.peer_format import PeerRequest, PeerWorkload, write_workload


def status_of(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code


def assert_refused(capfd: pytest.CaptureFixture[str], *arguments: str, saying: str) -> None:
    """Status 2, nothing on stdout, and one sentence on stderr, at most after what is being loaded.

    What child processes say counts too.
    """
    assert status_of(*arguments) == 2
    said = capfd.readouterr()
    assert said.out == ""
    *before, last = said.err.strip().splitlines()
    assert [line.split()[0] for line in before] in ([], ["loading"]), said.err
    assert last.startswith("evenflow: ")
    assert saying in last


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder with a tokenizer, and nothing else yet."""
    vocabulary = {"<unk>": 0, "a": 1}
    Tokenizer(WordLevel(vocabulary, unk_token="<unk>")).save(str(tmp_path / "tokenizer.json"))
    return tmp_path


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


# ---- serve -------------------------------------------------------------------------------------------------------


def test_a_model_that_is_not_there(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    assert_refused(capfd, "serve", "--model", missing, saying=missing)


def test_an_architecture_that_is_not_known(capfd: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "mamba", "architectures": ["MambaForCausalLM"]}')
    assert_refused(capfd, "serve", "--model", str(folder), "--port", "0", saying="'mamba'")


def test_a_gguf_file_of_an_architecture_that_is_not_known(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "rwkv7")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([b"a", b"b", b"ab"])
    writer.add_token_merges(["a b"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert_refused(capfd, "serve", "--model", str(path), "--port", "0", saying="rwkv7")


@pytest.mark.model
@pytest.mark.parametrize("num_bytes", [3, 30_000, 3_000_000])
def test_a_gguf_file_that_is_cut_off(capfd: pytest.CaptureFixture[str], tmp_path: Path, num_bytes: int) -> None:
    path = tmp_path / "cut.gguf"
    with resolve_model("smollm2-135m").open("rb") as whole, path.open("wb") as cut:
        shutil.copyfileobj(whole, cut)
        cut.truncate(num_bytes)
    assert_refused(capfd, "serve", "--model", str(path), saying=f"{path}: corrupt or truncated")


def test_a_host_that_others_can_reach_without_a_key(capfd: pytest.CaptureFixture[str]) -> None:
    for word in ("EVENFLOW_API_KEY", "--api-key", "--allow-unauthenticated"):
        assert_refused(capfd, "serve", "--host", "0.0.0.0", saying=word)


@pytest.mark.model
@pytest.mark.parametrize("num_streams", [0, 100])
def test_a_server_that_is_told_to_end_says_what_it_waits_for(num_streams: int) -> None:
    arguments = ("serve", "--executor", "shadow", "--port", "0", "--shutdown-timeout", "0")
    with subprocess.Popen([sys.executable, "-m", "evenflow", *arguments], stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        url = next(line for line in server.stderr if line.startswith("evenflow serves")).split()[-1]
        with ExitStack() as stack:
            if num_streams:  # so many that they do not end before the signal
                body = {"prompt": [1], "max_tokens": 4000, "stream": True, "ignore_eos": True, "n": num_streams}
                answer = stack.enter_context(httpx.stream("POST", f"{url}/v1/completions", json=body))
                lines = answer.iter_lines()  # kept: with its last reader the stream is closed
                assert next(lines).startswith("data:")
            server.send_signal(signal.SIGTERM)
            (line,) = server.stderr
        assert server.wait() == 0
    patience = "; up to 0 s to finish, a second signal stops at once"
    assert line.strip() == (
        f"evenflow is stopping: 100 streams are open{patience}"
        if num_streams
        else "evenflow is stopping: no stream is open"
    )


@pytest.mark.model
def test_a_port_in_use(capfd: pytest.CaptureFixture[str], taken_port: int) -> None:
    arguments = ("serve", "--executor", "shadow", "--port", str(taken_port))
    assert_refused(capfd, *arguments, saying=f"port {taken_port}")


@pytest.mark.model
def test_an_event_log_that_cannot_be_written(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = str(tmp_path / "missing" / "events.jsonl")
    assert_refused(capfd, "serve", "--executor", "shadow", "--port", "0", "--event-log", log, saying=log)


@pytest.mark.model
def test_a_kv_memory_that_holds_no_block(capfd: pytest.CaptureFixture[str]) -> None:
    """Only the engine process can tell, once the model is loaded; a shadow is a model at once."""
    arguments = ("serve", "--executor", "shadow", "--port", "0", "--kv-memory", "100")
    assert_refused(capfd, *arguments, saying="kv_memory 100 holds no KV block")


@pytest.mark.parametrize(
    ("flag", "value", "name"),
    [
        ("--kv-memory", "much", "kv_memory"),
        ("--block-size", "3", "block_size"),
        ("--max-num-seqs", "0", "max_num_seqs"),
        ("--port", "99999", "port"),
        ("--shutdown-timeout", "-1", "shutdown-timeout"),
    ],
)
def test_a_setting_that_cannot_be_served(capfd: pytest.CaptureFixture[str], flag: str, value: str, name: str) -> None:
    assert_refused(capfd, "serve", flag, value, saying=name)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("serve", "--max-num-seq", "3"), "--max-num-seq"),
        (("serve", "--max-num-seqs", "many"), "many"),
        (("serve", "--dtype", "fp8"), "fp8"),
        (("serve", "--kv-dtype", "fp4"), "fp4"),
        (("server",), "server"),
        (("bench", "scheduler", "--steps", "0"), "--steps"),
        (("demo", "--requests", "0"), "--requests"),
    ],
)
def test_a_command_line_that_says_nothing_known(
    capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], word: str
) -> None:
    assert status_of(*arguments) == 2
    said = capfd.readouterr()
    assert said.out == ""
    assert word in said.err
    assert "Traceback" not in said.err


# ---- the other commands ------------------------------------------------------------------------------------------


def test_the_command_is_installed_and_says_what_it_can_do() -> None:
    command = shutil.which("evenflow", path=str(Path(sys.executable).parent))
    assert command is not None
    said = subprocess.run([command, "--help"], capture_output=True, text=True, check=True)
    assert said.stderr == ""
    for name in ("serve", "demo", "model", "bench", "env"):
        assert f" {name} " in said.stdout


def test_the_models_that_can_be_pulled(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    app(["model", "list", "--cache-dir", str(tmp_path)], result_action="return_value")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[::2]] == ["smollm2-135m", "gemma3-270m"]
    assert [line.strip() for line in lines[1::2]] == ["not here yet"] * 2


def test_a_model_that_cannot_be_pulled(capfd: pytest.CaptureFixture[str]) -> None:
    assert_refused(capfd, "model", "pull", "gpt-5", saying="smollm2-135m")
    assert_refused(capfd, "model", "pull", "smolm2-135m", saying="did you mean smollm2-135m?")
    assert_refused(capfd, "serve", "--model", "smolm2-135m", saying="did you mean smollm2-135m?")


@pytest.mark.parametrize(
    ("bench", "flag", "value"),
    [("quality", "--max-num-seqs", "4"), ("quality", "--prefix-caching", ""), ("profile", "--max-num-seqs", "4")],
)
def test_a_setting_that_a_bench_chooses_itself_is_not_ignored(
    capfd: pytest.CaptureFixture[str], bench: str, flag: str, value: str
) -> None:
    assert_refused(capfd, "bench", bench, *filter(None, (flag, value)), saying=f"leave {flag} out")


@pytest.mark.model
@pytest.mark.parametrize(("flags", "state"), [((), "off"), (("--prefix-caching",), "on")])
def test_offline_throughput_is_measured_with_the_prefix_cache_that_was_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, flags: tuple[str, ...], state: str
) -> None:
    requests = (PeerRequest(0, "", (1, 2, 3), 4), PeerRequest(1, "", (4, 5), 3))
    write_workload(PeerWorkload(0, requests, requests, requests, (0.0, 0.0)), tmp_path / "workload.json")
    arguments = ["bench", "offline", str(tmp_path / "workload.json"), "--executor", "shadow", "--repeat", "1"]
    app([*arguments, "--no-single-stream", "--json", *flags], result_action="return_value")
    result = json.loads(capsys.readouterr().out)
    assert result["settings"]["prefix_caching"] == state
    assert len(result["runs"]) == 1


def test_the_environment(capsys: pytest.CaptureFixture[str]) -> None:
    app(["env"], result_action="return_value")
    said = capsys.readouterr().out
    machine = ("python", "torch", "processor", "instruction sets", "cores", "memory available", "compiler")
    chosen = ("kernel library", "kernels", "--dtype auto", "--quantize auto", "--kv-dtype auto")
    for name in ("evenflow", *machine, *chosen):
        assert f" {name} " in said


def test_the_cost_of_a_scheduler_step_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["bench", "scheduler", "--running", "4", "--waiting", "3", "--steps", "20", "--json"]
    app(arguments, result_action="return_value")
    cost = json.loads(capsys.readouterr().out)
    assert (cost["running"], cost["waiting"], cost["steps"]) == (4, 3, 20)
    assert 0 < cost["p50_us"] <= cost["p99_us"]


def test_what_the_front_adds_is_the_difference_of_two_times() -> None:
    client = {str(index): 0.010 + index * 1e-5 for index in range(200)}
    cost = front_cost(client, dict.fromkeys(client, 0.008), prompt_tokens=128)
    assert (cost.requests, cost.prompt_tokens) == (200, 128)
    assert cost.p50_ms == pytest.approx(2.995)
    assert cost.p95_ms == pytest.approx(3.89, abs=0.01)
    assert cost.max_ms == pytest.approx(3.99)
    assert cost.p99_ms is None  # 200 do not carry it


@pytest.mark.model
def test_the_front_is_measured_on_a_server_that_runs() -> None:
    prompts = [(1, 2, 3, index) for index in range(WARM_UP_REQUESTS + 12)]
    cost = measure(resolve_model("smollm2-135m"), prompts, serve_arguments=["--executor", "shadow"])
    assert (cost.requests, cost.prompt_tokens) == (12, 4)
    assert cost.p50_ms is not None
    assert 0 < cost.p50_ms <= cost.max_ms
