"""What a policy promises, as a table: the same for a preset on paper and for a server that runs."""

from collections.abc import Iterable

from rich.table import Table

from evenflow.core.policy.bound import Bound


def bounds_table(bounds: Iterable[Bound]) -> Table:
    table = Table(box=None, header_style="bold")
    table.add_column("bound", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("guarantee")
    for bound in bounds:
        value = "none" if bound.value is None else f"{bound.value:g} {bound.unit}"
        table.add_row(bound.name, value, bound.sentence)
    return table
