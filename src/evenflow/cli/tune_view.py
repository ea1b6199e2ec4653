"""What a search looks like in a terminal while it goes, and what it comes to."""

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from evenflow.cli.progress import is_screen, say
from evenflow.tune.effects import ITL_P99, TTFT_P95, throughput, value
from evenflow.tune.miss import misses
from evenflow.tune.objective import Goal
from evenflow.tune.race import Standing
from evenflow.tune.ranking import Candidate
from evenflow.tune.search import Found
from evenflow.tune.telling import headline, sentences, shown_seconds, told_miss

_LINES_PER_GRID = 10
_MOST_ROWS = 8
_SHOWN = (TTFT_P95, ITL_P99)


class TuneView:
    """A bar over the grid on a screen, ten lines where nobody could see one move. A live run has a bar of its own."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, transient=True, disable=not is_screen(console))
        self._task: TaskID | None = None
        self._told = 0

    def __enter__(self) -> "TuneView":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end_bar()

    def simulating(self, stage: int, done: int, total: int) -> None:
        what = "simulating the grid" + (", refitted" if stage else "")
        if not is_screen(self._console):
            part = done * _LINES_PER_GRID // total
            if part > self._told or done == total:
                say(self._console, f"{what}: {done} of {total} configurations")
            self._told = part if done < total else 0
            return
        if self._task is None:
            self._bar.start()
            self._task = self._bar.add_task(what, total=total)
        self._bar.update(self._task, completed=done)
        if done == total:
            self._end_bar()

    def _end_bar(self) -> None:
        if self._task is not None:
            self._bar.stop()
            self._bar.remove_task(self._task)
            self._task = None

    def racing(self, stage: int, round_number: int, label: str, place: int, total: int) -> None:
        say(self._console, f"round {round_number}, run {place} of {total}: {label}")

    def stood(self, standing: Standing) -> None:
        for cell, why in standing.out:
            say(self._console, f"  out: {cell.key}: {why}")
        if standing.stop is not None and (standing.out or len(standing.running) > 1):
            say(self._console, f"  the race is over: {standing.stop.value}")

    def said(self, sentence: str) -> None:
        say(self._console, sentence)


def show_found(found: Found, console: Console) -> None:
    style = "bold green" if found.keeps_limits else "bold yellow"
    console.print(headline(found), style=style, soft_wrap=True)
    for sentence in sentences(found):
        console.print(f"  {sentence}", soft_wrap=True)
    for sentence in misses(found):
        console.print(f"  {sentence}", soft_wrap=True, style="yellow")
    goal = found.search.goal
    extra = [goal.objective.title] if goal.objective.name != "throughput" else []
    table = Table("", *extra, "tokens/s", *(statistic.title for statistic in _SHOWN), "limits", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
        column.no_wrap = True
    for each in found.predicted.contenders[:_MOST_ROWS]:
        mark = "→ " if each.cell == found.choice.cell else "  "
        table.add_row(
            mark + found.search.space.label(each.cell),
            *([_objective(each, goal)] if extra else []),
            f"{throughput(each.run):.4g}",
            *(shown_seconds(value(each.run, statistic)) for statistic in _SHOWN),
            "" if not goal.limits else "kept" if each.keeps_limits else told_miss(each.worst_ratio),
        )
    if found.predicted.contenders:
        console.print("\nIn the running, simulated:" if found.is_live else "\nIn the running:")
        console.print(table)


def _objective(candidate: Candidate, goal: Goal) -> str:
    """Without its name, which is above it."""
    if goal.objective.statistic is not None:
        return shown_seconds(candidate.objective)
    return f"{candidate.objective:.4g}"
