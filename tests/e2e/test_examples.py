"""Every example runs as a newcomer would run it, and is as short as promised."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.real_server import RealServer

EXAMPLES = Path(__file__).parents[2] / "examples"
MAX_LINES = 64


def run(name: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short_and_says_how_to_run_it(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_LINES
    assert f"python examples/{path.name}\n" in text.split('"""')[1]


@pytest.mark.model
def test_generate() -> None:
    lines = run("01_generate.py").splitlines()
    assert lines[0].startswith("'The capital of France is' -> ' Paris")
    assert re.fullmatch(r"' Paris': -0\.\d\d", lines[6])
    assert "." not in lines[-1]


@pytest.mark.model
def test_chat(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "02_chat.py"), run_name="__main__")  # here, where torch is imported already
    said = capsys.readouterr().out
    assert "Paris" in said
    cached = [int(count) for count in re.findall(r"\((\d+) of \d+ prompt tokens were cached\)", said)]
    assert len(cached) == 3
    assert cached[0] == 0 < cached[1] <= cached[2]


@pytest.mark.model
def test_stream_from_a_server(real_server: RealServer) -> None:
    said = run("03_stream_from_server.py", EVENFLOW_URL=real_server.url)
    order = re.findall(r"\[(sky|bread|haiku):", said)
    assert order != sorted(order, key=["sky", "bread", "haiku"].index)  # they come interleaved
    for name in ("sky", "bread", "haiku"):
        assert re.search(rf"^{name}: \S", said, re.MULTILINE)


def test_watch_a_step() -> None:
    said = run("04_watch_a_step.py")
    for sight in ("chunk of a prompt", "is preempted", "budget", "max_num_seqs", "kv", "20 of 26 tokens are cached"):
        assert sight in said


def test_custom_policy() -> None:
    first_come, shortest_first = run("05_custom_policy.py").split("shortest-first:")
    means = [float(re.findall(r"after ([\d.]+) steps", part)[0]) for part in (first_come, shortest_first)]
    assert means[1] < means[0]
    assert re.search(r"^ +word +\*$", shortest_first, re.MULTILINE)
