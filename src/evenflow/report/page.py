"""Self-contained HTML pages: one file with its style and script inside, nothing from the network.

What a page shows came over the network once (names of models, words of servers): jinja2 escapes all of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.metadata import version
from pathlib import Path

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from evenflow.core.errors import EvenflowError
from evenflow.files.whole_file import write_whole
from evenflow.observe.summary import format_seconds


class ReportError(EvenflowError):
    """A page cannot be written; the message names the file."""


@dataclass(frozen=True, slots=True)
class Cell:
    """`style` is a class of page.css, or nothing."""

    text: str
    style: str = ""


Table = Sequence[Sequence[Cell]]


def seconds_cell(value: float | None) -> Cell:
    return Cell("withheld", "withheld") if value is None else Cell(format_seconds(value))


def header(*names: str) -> list[Cell]:
    return [Cell(name) for name in names]


def _asset(name: str) -> str:
    return resources.files("evenflow.report").joinpath("assets", name).read_text(encoding="utf-8")


def render(template: str, title: str, **values: object) -> str:
    environment = Environment(
        loader=FunctionLoader(_asset), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(template).render(
        title=title,
        version=version("evenflow"),
        style=Markup(_asset("page.css")),
        script=Markup(_asset("page.js")),
        **values,
    )


def write_page(page: str, path: Path) -> None:
    try:
        write_whole(path, page.encode(errors="backslashreplace"))  # a file name in it may be any bytes
    except OSError as error:
        raise ReportError(f"cannot write {path}: {error.strerror}") from error
