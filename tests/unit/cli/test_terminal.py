"""What strangers wrote, on a terminal: shown as it is, and never obeyed."""

import pytest
from rich.table import Table

from evenflow.cli.main import main
from evenflow.cli.progress import saying
from evenflow.cli.terminal import Terminal, sentence
from evenflow.observe.visible import visible


@pytest.mark.parametrize("name", ["[/red]", "[/]", "[bold]x", "a[link=http://b]c[/link]", ":smile:"])
def test_brackets_in_a_name_are_no_markup(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(name, box=None)
    table.add_row(name)
    terminal = Terminal()
    terminal.print(name, style="dim", soft_wrap=True)
    terminal.print(table)
    with saying(terminal, name) as say:
        say(name)
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == [name] * 5


def test_escape_sequences_are_spelt_out(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().print("\x1b[31mred\x9b2J\r\u202e")
    assert capsys.readouterr().out == "\\x1b[31mred\\x9b2J\\x0d\\u202e\n"


@pytest.mark.parametrize("text", ["plain", "two\nlines\tand a tab", "é漢🙂"])
def test_what_can_be_read_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


def test_a_half_of_a_character_can_be_printed() -> None:
    assert visible("a\udcff").encode() == b"a\\udcff"


def test_a_sentence_loses_its_middle_not_its_end() -> None:
    said = sentence("field x: " + "y" * 10_000_000 + "; try z")
    assert len(said) < 5000
    assert said.startswith("field x: y")
    assert said.endswith("y; try z")


def test_an_error_that_quotes_a_stranger_is_spelt_out(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["explain", "x", "--log", "\x1b]0;title\x07[/b]"])
    assert ended.value.code == 2
    assert "\\x1b]0;title\\x07[/b]" in capsys.readouterr().err
