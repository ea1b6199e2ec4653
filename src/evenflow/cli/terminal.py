"""Text of strangers on a terminal: names in a trace, what a server says of itself, ids that a client chose.

rich takes `[/b]` in a string for markup of ours, and fails over it. Here every string is shown as it is.
"""

from typing import Any

from rich.console import Console
from rich.text import Text

from evenflow.observe.visible import visible

_MOST_CHARACTERS = 4000


def sentence(text: str) -> str:
    """For what is to be read at a glance: visible, and without the middle of what is far too long."""
    if len(text) > _MOST_CHARACTERS:
        end = _MOST_CHARACTERS // 4
        text = f"{text[: _MOST_CHARACTERS - end]} ... {text[-end:]}"
    return visible(text)


class Terminal(Console):
    """A console that shows every string as it is, in tables too. What is to have a style is a Text."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:  # Any: rich's own options, handed on
        return super().render_str(visible(text), **options)
