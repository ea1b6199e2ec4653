"""What the README says works, in both languages."""

import re
import runpy
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from evenflow.cli.main import app

ROOT = Path(__file__).parents[2]
READMES = ("README.md", "README.zh-CN.md")
_CONTINUED = re.compile(r"\\\n\s*")


def blocks(readme: str, language: str) -> list[str]:
    """The code blocks of one language; what is in no language is for the eye."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / readme).read_text(), re.MULTILINE | re.DOTALL)


def commands(readme: str) -> Iterator[list[str]]:
    """Every `evenflow ...` line or inline code, as words."""
    text = (ROOT / readme).read_text()
    lines = "\n".join(_CONTINUED.sub(" ", block) for block in blocks(readme, "sh")).splitlines()
    for line in (*lines, *re.findall(r"`(evenflow [^`]+)`", text)):
        words = shlex.split(line, comments=True)
        if words and words[0] == "evenflow":
            yield words[1:]


def test_both_languages_show_the_same_code() -> None:
    for language in ("python", "sh"):
        english, chinese = ([_uncommented(code) for code in blocks(readme, language)] for readme in READMES)
        assert english
        assert english == chinese
    assert list(map(list, commands(READMES[0]))) == list(map(list, commands(READMES[1])))


def _uncommented(code: str) -> str:
    return re.sub(r" *# .*", "", code)


@pytest.mark.model
def test_the_python_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (code,) = blocks("README.md", "python")
    script = tmp_path / "readme.py"
    script.write_text(code)
    runpy.run_path(str(script), run_name="__main__")  # here, where torch is imported already
    assert len(capsys.readouterr().out.strip().splitlines()) >= 2


def test_five_lines_are_five_lines() -> None:
    (code,) = blocks("README.md", "python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 5


@pytest.mark.parametrize("words", list(commands("README.md")), ids=" ".join)
def test_a_command_that_is_named_exists(words: Sequence[str]) -> None:
    """Parsed, not run: an unknown command or flag raises."""
    command, bound, *_ = app.parse_args(list(words), exit_on_error=False, print_error=False)
    assert callable(command)
    assert bound is not None
