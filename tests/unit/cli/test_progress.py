"""Whoever waits is told what for, also where nothing can be drawn."""

import threading
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from evenflow.cli import progress
from evenflow.cli.progress import is_screen, lines_every, model_on_disk, saying
from evenflow.models.pull import PULLABLE, PullProgress


def test_a_file_gets_a_line_for_everything_that_is_done() -> None:
    said = StringIO()
    with saying(Console(file=said, width=20), "starting") as tell:
        tell("[bold] a line longer than the screen is wide")
        tell("W1, run 1 of 3")
    assert said.getvalue().splitlines() == [
        "starting",
        "[bold] a line longer than the screen is wide",
        "W1, run 1 of 3",
    ]


def test_a_terminal_that_cannot_move_its_cursor_is_no_screen() -> None:
    terminal = {"file": StringIO(), "force_terminal": True}
    assert is_screen(Console(**terminal, _environ={"TERM": "xterm"}))  # type: ignore[arg-type]
    assert not is_screen(Console(**terminal, _environ={"TERM": "dumb"}))  # type: ignore[arg-type]
    assert not is_screen(Console(file=StringIO()))


def test_lines_come_again_and_again_until_the_end() -> None:
    said = StringIO()
    thrice = threading.Event()
    numbers = iter(range(1_000_000))

    def now() -> str:
        number = next(numbers)
        if number == 3:
            thrice.set()
        return f"line {number}"

    with lines_every(0.0, Console(file=said), now):
        assert thrice.wait(60.0)
    lines = said.getvalue().splitlines()
    assert lines[:3] == ["line 0", "line 1", "line 2"]
    assert threading.active_count() == sum(thread.is_alive() for thread in threading.enumerate())
    assert "progress-lines" not in {thread.name for thread in threading.enumerate()}


def test_a_download_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    total = PULLABLE["smollm2-135m"].download_bytes
    path = tmp_path / "model.gguf"

    def resolve(name: str, *, cache_dir: Path, progress: Callable[[PullProgress], None]) -> Path:
        for hundredth in range(101):
            progress(PullProgress(name, total * hundredth // 100, total))
        return path

    monkeypatch.setattr(progress, "resolve_model", resolve)
    assert model_on_disk("smollm2-135m", tmp_path) == path
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == "fetching smollm2-135m: 93 MB"
    assert lines[-2] == "fetching smollm2-135m: 93 of 93 MB"
    assert lines[-1].startswith(f"smollm2-135m is in {path} (")
    assert len(lines) == 12
