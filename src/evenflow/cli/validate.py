"""`evenflow validate`: a live run's log against its simulation, or against the scheduler's own decisions again."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from evenflow.cli.options import Switch
from evenflow.cli.progress import say, saying
from evenflow.cli.terminal import Terminal
from evenflow.core.events import ConfigChanged
from evenflow.observe.log import read_log
from evenflow.observe.summary import format_seconds
from evenflow.simulate.catalogue import find_cost
from evenflow.simulate.cost_settings import different_settings
from evenflow.simulate.from_log import cost_of_log
from evenflow.simulate.pace import LEAST_STEPS, WINDOW_SECONDS
from evenflow.simulate.recorded import Repetition, replay_log
from evenflow.simulate.validate import PREEMPTION_LIMIT, STEP_LIMITS, Error, Paced, Validation
from evenflow.simulate.validate import validate as run_validation
from evenflow.workload.rows import check_can_be_read_again

_STEPS_BETWEEN_NEWS = 10_000
_HARDLY = 0.005


def validate(
    log: Path, *, cost: str | None = None, recorded: Switch = False, groups: Switch = False, force: Switch = False
) -> None:
    """Simulate what an event log saw, and say how far off each figure is.

    The status is 1 if, with --recorded, a decision differs.

    Parameters
    ----------
    log
        Event log of a server; .gz is unpacked.
    cost
        Cost to simulate with; fitted to this very log if none is given, which flatters it.
    recorded
        Feed the recorded step times and commands to the scheduler instead: every decision must come out the same.
    groups
        Show every length group as well.
    force
        Use a cost that was measured on another machine or with another evenflow.
    """
    console, stage = Terminal(), Terminal(stderr=True)
    if not recorded and cost is None:
        check_can_be_read_again(log)
    with saying(stage, f"reading {log}"), read_log(log) as reader:
        events = list(reader)
    if recorded:
        with saying(stage, "deciding every step again") as tell:
            again = replay_log(events, progress=lambda steps: _tell(steps, tell))
        _show_repetition(again, console)
        sys.exit(0 if again.difference is None else 1)
    if cost is not None:
        step_cost = find_cost(cost, force=force)
    else:
        with read_log(log) as reader:
            step_cost = cost_of_log(reader, "as logged")
        console.print(
            "no cost was given: it is fitted to this log itself, so the errors are not of a held-out run",
            soft_wrap=True,
        )
    started = next((event for event in events if isinstance(event, ConfigChanged)), None)
    for difference in different_settings(step_cost, dict(started.settings) if started is not None else {}):
        say(stage, f"caution: the cost is of another engine than the log's: {difference}")
    with saying(stage, "simulating the run as it was"):
        found = run_validation(events, step_cost)
    show_validation(found, console, groups=groups)


def _tell(steps: int, tell: Callable[[str], None]) -> None:
    if steps % _STEPS_BETWEEN_NEWS == 0:
        tell(f"deciding every step again: {steps:,} so far")


def _show_repetition(again: Repetition, console: Console) -> None:
    saw = (
        f"{again.num_requests} requests, {again.num_preemptions} preemptions, {again.num_aborts} aborts, "
        f"{again.num_policy_changes} changes of policy"
    )
    if again.difference is None:
        console.print(f"{again.num_steps} steps decided again as they were live ({saw})", style="green", soft_wrap=True)
    else:
        console.print(f"after {again.num_steps} steps alike ({saw}): {again.difference}", style="red", soft_wrap=True)


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:+.1%}"


def _by_figure(errors: Sequence[Error]) -> dict[tuple[str, str, str], float]:
    return {(error.group, error.metric, error.figure): error.share for error in errors}


def _paced_steps(paced: Paced | None) -> str:
    if paced is None or paced.steps.mape is None or paced.steps.p95 is None or paced.steps.bias is None:
        return ""
    return f"; at the live pace {paced.steps.mape:.1%}, {paced.steps.p95:.1%}, {paced.steps.bias:+.2%}"


def _pace_sentence(paced: Paced | None) -> str:
    if paced is None:
        return (
            "how fast the machine was is not told: too few steps in which only streams went on (asked for: "
            f"{LEAST_STEPS} in {WINDOW_SECONDS:g} s, somewhere in each run)"
        )
    pacing = paced.pacing
    off = pacing.mean - 1.0
    usual = "as fast as" if abs(off) < _HARDLY else f"{abs(off):.0%} {'slower' if off > 0.0 else 'faster'} than"
    return (
        f"the machine was {usual} the cost says, {pacing.low:.2f} to {pacing.high:.2f} times from window to window (P5 "
        f"to P95 of {pacing.num_windows}, of {WINDOW_SECONDS:g} s each), by steps in which only streams went on; the "
        "last column is what is left when that is given to the simulation. Whether a demand is met goes by the error "
        "without it"
    )


def show_validation(found: Validation, console: Console, *, groups: bool, again: Sequence[Error] = ()) -> None:
    """`again` is by how much a second live run differed from the first, for the figures that it has. The last column is
    the error that is left at the live pace; it decides nothing."""
    between, paced = _by_figure(again), _by_figure(found.paced.errors if found.paced is not None else ())
    more = ("live again",) if again else ()
    last = ("at the live pace",) if found.paced is not None else ()
    table = Table("", "", "figure", "n", "live", "simulated", "error", *more, "asked for", *last, box=None)
    for column in table.columns[3:]:
        column.justify = "right"
    for error in found.errors:
        if error.group != "all" and not groups:
            continue
        asked = "" if error.limit is None else f"{error.limit:.0%}{' or 10 ms' if error.least_seconds else ''}"
        table.add_row(
            error.group,
            error.metric,
            error.figure,
            str(error.num_observations),
            format_seconds(error.live),
            format_seconds(error.simulated),
            f"{error.share:+.1%}",
            *(_share(between.get((error.group, error.metric, error.figure))) for _ in more),
            asked,
            *(_share(paced.get((error.group, error.metric, error.figure))) for _ in last),
            style={None: None, True: "green", False: "red"}[error.met],
        )
    console.print(table)
    steps = found.steps
    if steps.mape is not None and steps.p95 is not None and steps.bias is not None:
        mean, tail, total = STEP_LIMITS
        console.print(
            f"{steps.num_steps} live steps are predicted within {steps.mape:.1%} in the mean (asked for: {mean:.0%}), "
            f"{steps.p95:.1%} at P95 ({tail:.0%}), {steps.bias:+.2%} in all ({total:.0%}){_paced_steps(found.paced)}",
            soft_wrap=True,
        )
    rate, count = "", ""
    if found.paced is not None:
        rate = f" ({found.paced.tokens_per_second:.4g} at the live pace)"
        count = f" ({found.paced.preemptions} at the live pace)"
    console.print(
        f"output tokens/s: {found.live_tokens_per_second:.4g} live, {found.simulated_tokens_per_second:.4g} simulated"
        f"{rate}; preemptions: {found.live_preemptions} live, {found.simulated_preemptions} simulated{count} (asked "
        f"for: within {PREEMPTION_LIMIT:.0%})",
        soft_wrap=True,
    )
    console.print(_pace_sentence(found.paced), soft_wrap=True)
    if found.has_changes:
        console.print("the policy was changed during the run; the simulation has held on to the first", style="yellow")
    for note in found.simulation.notes:
        console.print(f"  {note}", soft_wrap=True)
