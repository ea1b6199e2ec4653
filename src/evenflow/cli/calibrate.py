"""`evenflow calibrate`: what a step costs on this machine, measured live or read from an event log."""

from dataclasses import replace
from pathlib import Path

from cyclopts.types import PositiveFloat
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from evenflow.cli.options import EngineOptions, check_out
from evenflow.cli.progress import is_screen, model_on_disk, say
from evenflow.cli.terminal import Terminal
from evenflow.engine.config import EngineConfig, ExecutorKind
from evenflow.observe.log import read_log
from evenflow.simulate.calibrate import calibrate as run_calibration
from evenflow.simulate.cost import StepCost
from evenflow.simulate.cost_file import save_cost
from evenflow.simulate.from_log import cost_of_log


def calibrate(
    *,
    engine: EngineOptions = EngineConfig(),
    seconds: PositiveFloat = 90.0,
    out: Path = Path("cost.json"),
    log: Path | None = None,
    seed: int = 0,
) -> None:
    """Fit what a step costs here, to simulate with.

    Parameters
    ----------
    seconds
        How long to drive the engine; a fifth of it goes into a run that only says how good the fit is.
    out
        Where the cost goes.
    log
        Fit to the steps of this event log of a server instead, and drive nothing.
    seed
        Seed of the requests' content.
    """
    console = Terminal(stderr=True)
    check_out(out, inputs=[] if log is None else [log])
    if log is not None:
        with read_log(log) as events:
            cost = cost_of_log(events, engine.model)
    else:
        path = model_on_disk(engine.model) if engine.executor is ExecutorKind.TORCH else Path(engine.model)
        cost = _driven(replace(engine, model=str(path)), seconds, seed, console)
        cost = named(cost, engine.model)
    save_cost(out, cost)
    show_cost(cost, Terminal())
    say(console, f"{out} has the cost; `evenflow simulate --cost {out}` uses it")


def _driven(engine: EngineConfig, seconds: float, seed: int, console: Console) -> StepCost:
    columns = (TextColumn("calibrating"), BarColumn(), TimeRemainingColumn(), TextColumn("{task.fields[now]}"))
    with Progress(*columns, console=console, transient=True, disable=not is_screen(console)) as bar:
        task = bar.add_task("", total=1.0, now="")

        def show(share: float, words: str) -> None:
            bar.update(task, completed=share, now=words)

        return run_calibration(engine, seconds=seconds, seed=seed, progress=show)


def named(cost: StepCost, model: str) -> StepCost:
    """By the name that was asked for, not by where its file is."""
    identity = replace(cost.identity, model=model, description=f"{model} on {cost.identity.machine}")
    return replace(cost, identity=identity)


def show_cost(cost: StepCost, console: Console) -> None:
    table = Table("a step costs", "", box=None)
    for name, seconds in (
        ("always", cost.fixed_seconds),
        ("reading the weights", cost.weight_seconds),
        ("1000 tokens", 1e3 * cost.token_seconds),
        ("100 requests", 1e2 * cost.request_seconds),
        ("1 million positions of prefill", 1e6 * cost.prefill_context_seconds),
        ("1 million positions of decode", 1e6 * cost.decode_context_seconds),
        ("between two steps", cost.gap_seconds),
    ):
        table.add_row(name, f"{seconds * 1e3:.3f} ms")
    console.print(table)
    for quality in cost.qualities:
        if quality.mape is not None and quality.p95 is not None and quality.bias is not None:
            console.print(
                f"on {quality.held_out} ({quality.num_steps} steps): off by {quality.mape:.1%} in the mean, "
                f"{quality.p95:.1%} at P95, {quality.bias:+.1%} in all",
                soft_wrap=True,
            )
    for note in cost.notes:
        console.print(f"  {note}", soft_wrap=True)
