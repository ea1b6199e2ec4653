"""Help as paragraphs: what goes over two lines in the source is one sentence again, as wide as the terminal.

cyclopts shows plain text with the line breaks of its docstring, and an empty list as `[default: ()]`.
"""

from cyclopts.help import DefaultFormatter, HelpEntry, HelpPanel, InlineText
from rich.console import Console, ConsoleOptions
from rich.text import Text


class Flowing(DefaultFormatter):
    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        super().__call__(console, options, panel.copy(entries=[_flowing(entry) for entry in panel.entries]))


def _flowing(entry: HelpEntry) -> HelpEntry:
    text = entry.description
    if isinstance(text, InlineText) and isinstance(text.primary_renderable, Text):
        text.primary_renderable = Text(" ".join(text.primary_renderable.plain.split()))
    return entry.copy(default=None) if entry.default == "()" else entry
