"""What a replay looks like in a terminal: a bar while it runs, the tails and the verdict when it has.

The bar is painted by the run itself, in the gaps between sends (replay/watch.py); rich's own refreshing thread would
take the interpreter away from a send that is due.
"""

from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from evenflow.observe.summary import format_seconds
from evenflow.replay.assess import Assessed
from evenflow.replay.load import Load
from evenflow.replay.preflight import Ready
from evenflow.replay.run import Replay
from evenflow.replay.sweep import Point
from evenflow.replay.watch import Progress as RunProgress
from evenflow.report.page import Table as Cells
from evenflow.report.replay_page import group_table, latency_table


class ReplayBar:
    """Nothing is drawn where there is no terminal."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.fields[phase]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[state]}"),
        )
        self._bar = Progress(
            *columns, console=console, auto_refresh=False, transient=True, disable=not console.is_terminal
        )
        self._task = self._bar.add_task("", total=None, visible=False, phase="", state="")
        self._tokens = 0
        self._tokens_at = 0.0

    def __enter__(self) -> "ReplayBar":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.stop()

    def show(self, progress: RunProgress, now: float) -> None:
        rate = (progress.num_tokens - self._tokens) / (now - self._tokens_at) if self._tokens_at else 0.0
        self._tokens, self._tokens_at = progress.num_tokens, now
        failed = f", [red]{progress.num_failed} failed[/red]" if progress.num_failed else ""
        sending = progress.next_due is not None
        self._bar.update(
            self._task,
            total=len(progress.observed),
            completed=progress.num_done + progress.num_failed,
            phase="sending" if sending else "draining",
            state=f"{progress.num_sent} sent, {progress.num_in_flight} in flight{failed}, {rate:.0f} tokens/s",
            visible=True,
            refresh=True,
        )


def say_what(console: Console, what: Replay, ready: Ready, load: Load) -> None:
    span = load.plans[-1].send_at
    pacing = what.pacing.describe()
    console.print(
        f"{len(load.plans)} requests ({load.num_prompt_tokens} prompt, {load.num_output_tokens} output tokens) over "
        f"{span:.1f} s to {ready.facts.model} at {what.url} ({ready.facts.software}), {pacing}",
        soft_wrap=True,
    )
    for note in (*load.notes, *ready.notes):
        console.print(f"  {note}", style="dim", soft_wrap=True)


def show_result(assessed: Assessed, console: Console) -> None:
    measured, verdict = assessed.measured, assessed.verdict
    console.print(_table(latency_table(measured.rows[:4])))
    groups = [group for group in measured.groups if group.kind == "lengths"]
    if len(groups) > 1:
        console.print(_table(_narrow(group_table(groups))))
    rates = measured.rates
    failed = "".join(f", {num} failed ({reason})" for reason, num, _ in measured.failed)
    unsent = f", {measured.num_unsent} never sent" if measured.num_unsent else ""
    console.print(f"{measured.num_ok} of {measured.num_planned} requests went well{failed}{unsent}")
    goodput = ""
    if rates.goodput is not None and measured.share_meeting_slo is not None:
        goodput = f"; goodput {rates.goodput:.3g}/s ({measured.share_meeting_slo:.1%} meet {assessed.result.slo})"
    console.print(
        f"{rates.completed:.3g} requests/s of {rates.offered:.3g}/s offered, {rates.output_tokens:.4g} output tokens/s,"
        f" {rates.prompt_tokens:.4g} prompt tokens/s{goodput}",
        soft_wrap=True,
    )
    style = "bold red" if not verdict.valid else "yellow" if verdict.cautions else "green"
    console.print(f"this run is {verdict.title}", style=style)
    for sentence in (*verdict.faults, *verdict.cautions):
        console.print(f"  {sentence}", soft_wrap=True)
    if verdict.dispatch_lag_p99:  # none at all is a simulation's
        console.print(f"  dispatch lag P99 {format_seconds(verdict.dispatch_lag_p99)}", style="dim")


def show_sweep(done: Sequence[tuple[Point, Assessed | None]], console: Console) -> None:
    """One line a point."""
    table = Table("run", "offered/s", "completed/s", "output tokens/s", "TTFT P50", "TTFT P95", "ITL P95", "", box=None)
    for column in table.columns[1:7]:
        column.justify = "right"
    for point, assessed in done:
        if assessed is None:
            table.add_row(point.what.name, *[""] * 6, f"failed: {point.error}")
            continue
        rates, (ttft, itl) = assessed.measured.rates, assessed.measured.rows[:2]
        tails = (ttft.tail.p50, ttft.tail.p95, itl.tail.p95)
        table.add_row(
            point.what.name,
            f"{rates.offered:.3g}",
            f"{rates.completed:.3g}",
            f"{rates.output_tokens:.4g}",
            *("withheld" if value is None else format_seconds(value) for value in tails),
            assessed.verdict.title,
        )
    console.print(table)


def _narrow(cells: Cells) -> Cells:
    """n, and the P95 of each metric: what a terminal is wide enough for."""
    kept = [index for index, cell in enumerate(cells[0]) if index < 2 or cell.text.endswith("P95")]
    return [[row[index] for index in kept] for row in cells]


def _table(cells: Cells) -> Table:
    table = Table(*(cell.text for cell in cells[0]), box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in cells[1:]:
        table.add_row(*(cell.text for cell in row))
    return table
