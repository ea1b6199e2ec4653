"""`evenflow diagnose`: what a run suffers from, and what to set instead."""

from pathlib import Path

from evenflow.cli.options import Switch
from evenflow.core.errors import ConfigError
from evenflow.diagnose.report import render_json, render_text
from evenflow.diagnose.rules import diagnose_result, diagnose_run
from evenflow.diagnose.run_view import look_at
from evenflow.observe.log import read_log
from evenflow.replay.assess import assess
from evenflow.replay.recorded import is_event_log
from evenflow.replay.result import read_result


def diagnose(source: Path, /, *, itl_target: float | None = None, json: Switch = False) -> None:
    """Say what a run suffers from, which steps and requests show it, and which settings would help.

    Parameters
    ----------
    source
        An event log of the server, or a result file of a replay; the log tells more.
    itl_target
        Seconds between two tokens of a stream that you want to keep at P99; what the policy aims at if not given.
    json
        Print it for programs.
    """
    if itl_target is not None and not 0.0 < itl_target < 3600.0:
        raise ConfigError(f"--itl-target must be seconds above 0, such as 0.05, not {itl_target}")
    if is_event_log(source):
        with read_log(source) as events:
            found = diagnose_run(look_at(events, itl_target=itl_target), str(source))
    else:
        found = diagnose_result(assess(read_result(source)), str(source))
    print(render_json(found) if json else render_text(found), end="")
