"""Help flows over the lines of the source, and has no flags that only empty a list."""

import pytest

from evenflow.cli.main import app


def shown(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    app([command, "--help"], exit_on_error=False, result_action="return_value")
    return capsys.readouterr().out


def test_a_sentence_over_two_lines_of_the_source_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    words = " ".join(shown("log", capsys).replace("│", " ").split())
    assert "Full parts (FILE.1, FILE.2, ...) are read with their FILE." in words
    lines = [line.strip("│ ") for line in shown("log", capsys).splitlines()]
    assert "with their FILE." not in lines


@pytest.mark.parametrize("command", ["simulate", "tune", "log"])
def test_a_list_has_no_flag_that_empties_it_and_no_empty_default(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(command, capsys)
    assert "given" in text
    assert "--empty" not in text
    assert "()" not in text
