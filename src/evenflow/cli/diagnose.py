"""`evenflow diagnose`: what a run suffers from, what to set instead, and what that would do."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from evenflow.cli.options import Switch
from evenflow.cli.progress import saying
from evenflow.cli.terminal import Terminal
from evenflow.core.errors import ConfigError
from evenflow.core.events import Event
from evenflow.diagnose.effect import Basis, Effect
from evenflow.diagnose.finding import Change
from evenflow.diagnose.report import render_json, render_text
from evenflow.diagnose.rules import Diagnosis, diagnose_result, diagnose_run, with_effects
from evenflow.diagnose.run_view import look_at
from evenflow.observe.log import read_log
from evenflow.observe.visible import visible
from evenflow.replay.assess import assess
from evenflow.replay.recorded import is_event_log
from evenflow.replay.result import read_result
from evenflow.simulate.catalogue import find_cost
from evenflow.simulate.cost import StepCost
from evenflow.simulate.cost_file import CostError
from evenflow.simulate.from_log import cost_of_log
from evenflow.simulate.recorded import RecordedError
from evenflow.simulate.what_if import SimulatedRun

_HOW = "measure a cost with `evenflow calibrate`, and give it as --cost cost.json"


def diagnose(
    source: Path,
    /,
    *,
    itl_target: float | None = None,
    cost: str | None = None,
    force: Switch = False,
    facts_only: Switch = False,
    json: Switch = False,
) -> None:
    """Say what a run suffers from, which steps and requests show it, which settings would help, and by how much.

    Parameters
    ----------
    source
        An event log of the server, or a result file of a replay; the log tells more.
    itl_target
        Seconds between two tokens of a stream that you want to keep at P99; what the policy aims at if not given.
    cost
        Cost to simulate the proposed settings with (`evenflow calibrate`, `evenflow costs`); fitted to this very log if
        none is given.
    force
        Use a cost that was measured on another machine or with another evenflow.
    facts_only
        Say what the log shows, and simulate nothing.
    json
        Print it for programs.
    """
    if itl_target is not None and not 0.0 < itl_target < 3600.0:
        raise ConfigError(f"--itl-target must be seconds above 0, such as 0.05, not {itl_target}")
    if facts_only and cost is not None:
        raise ConfigError("--facts-only simulates nothing, so --cost has no use; give one of the two")
    if is_event_log(source):
        step_cost = find_cost(cost, force=force) if cost is not None else None
        with read_log(source) as reader:
            events = list(reader)
        found = diagnose_run(look_at(events, itl_target=itl_target), str(source))
        if found.num_server_changes and not facts_only:
            found = _predicted(found, source, events, step_cost)
    elif cost is not None:
        raise ConfigError(f"--cost simulates what an event log saw, and {source} is none; diagnose the server's log")
    else:
        found = diagnose_result(assess(read_result(source)), str(source))
    print(render_json(found) if json else visible(render_text(found)), end="")


def _predicted(found: Diagnosis, source: Path, events: Sequence[Event], cost: StepCost | None) -> Diagnosis:
    """With effects; where they cannot be told, the diagnosis stands, and says why."""
    with saying(Terminal(stderr=True), "simulating the run as it was") as say:
        try:
            simulated = SimulatedRun(events, cost or _cost_of(source), fitted_here=cost is None)
        except CostError as error:
            return replace(found, basis=Basis((f"no what-if numbers: {error}; or {_HOW}",)))
        except RecordedError as error:
            return replace(found, basis=Basis((f"no what-if numbers: {error}",)))
        return with_effects(found, _told(simulated, say), simulated.basis)


def _told(simulated: SimulatedRun, say: Callable[[str], None]) -> Callable[[Change], Effect]:
    def what_if(change: Change) -> Effect:
        say(f"simulating {change.flags}")
        return simulated(change)

    return what_if


def _cost_of(source: Path) -> StepCost:
    with read_log(source) as reader:
        return cost_of_log(reader, "as logged")
