"""Every command and every flag says what it is for."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from io import StringIO

import pytest
from cyclopts import App
from rich.console import Console

from evenflow.cli.main import app
from evenflow.cli.serve import FrontOptions
from evenflow.engine.config import EngineConfig

# "│ --flag, more names and its type   what it is for │", on a screen so wide that nothing is wrapped.
_ROW = re.compile(r"^│ \*?\s*(?:\S+ )*?(--[a-z-]+)(?: .*?)? {2,}(\S.*?) +│$", re.MULTILINE)
_NO_HELP = re.compile(r"(\[(default|choices|env var|required).*\]\s*)*")


def help_of(*words: str) -> str:
    screen = StringIO()
    app([*words, "--help"], console=Console(file=screen, width=1000), result_action="return_value")
    return screen.getvalue()


def explained(*words: str) -> dict[str, str]:
    return {flag: text for flag, text in _ROW.findall(help_of(*words)) if not _NO_HELP.fullmatch(text)}


def commands(parent: App = app, *words: str) -> Iterator[tuple[str, ...]]:
    below = [name for name in parent if not name.startswith("-")]
    if not below:
        yield words
    for name in below:
        yield from commands(parent[name], *words, name)


def test_the_commands_are_found() -> None:
    assert {("serve",), ("demo",), ("env",), ("model", "pull"), ("bench", "front")} <= set(commands())


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_every_flag_is_explained(words: Sequence[str]) -> None:
    text = help_of(*words)
    assert len(text.splitlines()[2]) > 20, "what the command does"
    flags = {row.split()[0] for row in re.findall(r"^│ \*?\s*(--.*)$", text, re.MULTILINE)}
    assert explained(*words).keys() >= flags


def test_every_setting_of_a_server_is_a_flag() -> None:
    names = [field.name for config in (EngineConfig, FrontOptions) for field in fields(config)]
    assert explained("serve").keys() == {f"--{name.replace('_', '-')}" for name in names}
