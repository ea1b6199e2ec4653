"""`evenflow compare`: results of replays against each other."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.table import Table

from evenflow.cli.options import check_out
from evenflow.cli.progress import saying
from evenflow.cli.terminal import Terminal
from evenflow.core.errors import ConfigError
from evenflow.replay.compare import compare as compare_results
from evenflow.replay.result import read_result
from evenflow.report.compare_page import compare_page, describe_pairs, text_rows
from evenflow.report.page import write_page


def compare(base: Path, others: Annotated[list[Path], Parameter(negative=())], /, *, out: Path | None = None) -> None:
    """Compare results of replays: what differs by more than chance, and what the data cannot tell.

    Parameters
    ----------
    base
        Result file that the others are compared with.
    others
        Result files of the same load.
    out
        Write a page to this file.
    """
    if not others:
        raise ConfigError("compare needs at least two result files")
    if out is not None:
        check_out(out, inputs=[base, *others])
    first = read_result(base)
    console = Terminal()
    comparisons = []
    for path in others:
        other = read_result(path)
        with saying(Terminal(stderr=True), f"resampling {path} against {base}"):
            comparisons.append(compare_results(first, other))
    for comparison in comparisons:
        head, *rows = text_rows(comparison)
        table = Table(*head, box=None)
        for column in table.columns[1:]:
            column.justify = "right"
        for row, cells in zip(comparison.rows, rows, strict=True):
            style = ("green" if row.better else "red") if row.differs else None
            table.add_row(*cells, style=style)
        console.print(table)
        console.print(f"{describe_pairs(comparison)}; intervals at 95 % for all rows together", style="dim")
        for remark in comparison.remarks:
            console.print(f"  {remark}", style="dim", soft_wrap=True)
        console.print(comparison.sentence, style="bold", soft_wrap=True)
    if out is not None:
        write_page(compare_page(comparisons), out)
        console.print(f"{out} shows it", soft_wrap=True)
