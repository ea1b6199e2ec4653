"""`evenflow bench tuner`: the tuner's choice against a grid that is measured live as a whole."""

import json as json_module
import time
from dataclasses import dataclass, replace
from math import expm1, nan
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import PositiveFloat, PositiveInt
from rich.console import Console
from rich.table import Table

from evenflow.bench.tuner import MOST_REGRET, MOST_SHARE, Regret, Setting, Verdict, measure
from evenflow.cli.options import Switch
from evenflow.cli.progress import model_on_disk, say, saying
from evenflow.cli.signals import ending_in_order
from evenflow.cli.tune import LiveUnderBar, live_engine, prepared
from evenflow.cli.tune_options import SearchOptions, TunedEngine
from evenflow.cli.tune_view import TuneView
from evenflow.core.errors import ConfigError
from evenflow.engine.config import EngineConfig
from evenflow.observe.summary import format_seconds
from evenflow.replay.bootstrap import Interval
from evenflow.replay.load import LoadOptions
from evenflow.simulate.calibrate import calibrate
from evenflow.simulate.cost_file import save_cost
from evenflow.tune.blocked import Blocked
from evenflow.workload.formats import azure_excerpt

_MAX_MODEL_LEN = 2048


@dataclass(frozen=True, slots=True)
class _Size:
    """An even number of rounds is counterbalanced."""

    vary: tuple[str, ...]
    rounds: int
    requests: int
    calibration_seconds: float


_POLICIES = "policy=vllm,sglang"
FULL = _Size(("max_num_batched_tokens=64,256", "max_num_seqs=4,16,32", _POLICIES), 6, 20, 60.0)
SMALL = _Size(("max_num_batched_tokens=256", "max_num_seqs=4,16,32", _POLICIES), 2, 10, 20.0)


def tuner(
    *,
    small: Switch = False,
    cost: str | None = None,
    objective: str = "e2e_mean",
    slo: str | None = None,
    vary: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    rounds: PositiveInt | None = None,
    max_live: PositiveInt = 3,
    max_rounds: PositiveInt = 2,
    requests: PositiveInt | None = None,
    length_scale: PositiveFloat = 0.25,
    rate_scale: PositiveFloat = 1.0,
    calibration_seconds: PositiveFloat | None = None,
    seed: int = 0,
    out: Path = Path("bench-tuner"),
    engine: Annotated[TunedEngine, Parameter(name="*")] = TunedEngine(),
    json: Switch = False,
) -> None:
    """Measure a grid of 12 cells live, let the tuner search it by itself, and compare choice and machine time.

    A run of some 25 minutes; a run that was stopped goes on where it stopped. The load is the head of the Azure 2023
    conversation trace. Cells that are the same as simulated are compared as one.

    Parameters
    ----------
    small
        6 cells and few short runs: some 5 minutes, and too few to tell anything but large differences.
    cost
        Cost file of `evenflow calibrate` for this engine; the bench calibrates if not given.
    objective
        What should be best, as for `evenflow tune`.
    slo
        Limits, as for `evenflow tune`.
    vary
        Other knobs than those of the 12 cells, as for `evenflow tune`.
    rounds
        How often the grid runs every cell; 6 if not given.
    max_live
        Most configurations that the tuner races live.
    max_rounds
        Most rounds of such a race.
    requests
        Requests of a run; 20 if not given. More rounds of shorter runs say more than fewer of longer ones.
    length_scale
        Factor on the trace's lengths.
    rate_scale
        Factor on the trace's arrival rate.
    calibration_seconds
        How long to calibrate (60 s if not given), or what it took to measure the cost that is given: it counts as the
        tuner's.
    seed
        Seed of simulations, of the order of runs and of the prompts' content.
    out
        Folder for all runs.
    json
        Print JSON instead of tables.
    """
    size = SMALL if small else FULL
    rounds, requests = rounds or size.rounds, requests or size.requests
    calibration_seconds = calibration_seconds or size.calibration_seconds
    trace = azure_excerpt()
    if requests > len(trace.requests):
        raise ConfigError(f"requests must be at most {len(trace.requests)}: that is how much of the trace there is")
    trace = replace(trace, requests=trace.head(requests), num_rows=requests, dropped=())
    load = LoadOptions(length_scale=length_scale, rate_scale=rate_scale, max_model_len=_MAX_MODEL_LEN, seed=seed)
    options = SearchOptions(
        objective=objective, vary=vary or size.vary, out=out, max_live=max_live, max_rounds=max_rounds
    )
    config = engine.config(_MAX_MODEL_LEN)
    stage = Console(stderr=True, highlight=False)
    if cost is None:
        cost, calibration_seconds = _calibrated(config, calibration_seconds, out, stage)
    what, _ = prepared(trace, cost, slo, load, config, options)
    with ending_in_order(), TuneView(stage) as view:
        live = LiveUnderBar(live_engine(trace, load, config, what), what.cost, out, stage)
        regret = measure(
            what,
            live,
            out,
            rounds=rounds,
            calibration_seconds=calibration_seconds,
            watch=view,
            progress=lambda now: say(stage, now),
        )
    if json:
        print(json_module.dumps(_as_json(regret)))
        return
    _show(regret, Console(highlight=False))


def _calibrated(config: EngineConfig, seconds: float, out: Path, console: Console) -> tuple[str, float]:
    """A cost file in `out`, measured now or by the run of the bench that was stopped, and what that took."""
    cost, took = out / "cost.json", out / "calibration.json"
    if not took.exists():
        out.mkdir(parents=True, exist_ok=True)
        config = replace(config, model=str(model_on_disk(config.model)))
        began = time.monotonic()
        with saying(console, "calibrating") as say_now:
            found = calibrate(config, seconds=seconds, seed=0, progress=lambda share, words: say_now(words))
        save_cost(cost, found)
        took.write_text(json_module.dumps({"seconds": time.monotonic() - began}), encoding="utf-8")
    return str(cost), float(json_module.loads(took.read_text(encoding="utf-8"))["seconds"])


def _as_json(regret: Regret) -> dict[str, object]:
    label = regret.found.search.space.label
    evidence = regret.evidence
    both = {"raw": evidence.raw, "corrected": evidence.corrected}
    return {
        "goal": str(regret.goal),
        "settings": [
            {
                "cells": [label(cell) for cell in each.cells],
                "runs": each.num_runs,
                "keeps_limits": each.worst_ratio <= 1.0,
                **{name: regret.objective(figures, each) for name, figures in both.items() if figures is not None},
            }
            for each in regret.settings
        ],
        "best": label(regret.best.cells[0]),
        "chosen": label(regret.found.choice.cell),
        "decides": "corrected" if evidence.is_corrected else "raw",
        "why": evidence.why,
        "regret": {name: _numbers(regret.lost_by(figures)) for name, figures in both.items() if figures is not None},
        "within_3_percent": regret.verdict.value,
        "run_sd": {name: figures.sd for name, figures in both.items() if figures is not None},
        "equal_settings_sd": regret.noise.sd if regret.noise is not None else None,
        "keeps_limits": regret.chosen.worst_ratio <= 1.0,
        "grid_seconds": regret.grid_seconds,
        "tuner_seconds": regret.tuner_seconds,
        "share": regret.share,
        "failed": {label(cell): why for cell, why in regret.failed},
    }


def _numbers(lost: Interval) -> list[float | None]:
    return [lost.estimate, lost.low, lost.high]


def _show(regret: Regret, console: Console) -> None:
    goal, label, evidence = regret.goal, regret.found.search.space.label, regret.evidence
    decides = evidence.decides
    title = goal.objective.title
    table = Table("", title, "corrected", "against the best", "limits", "", box=None)
    table.caption, table.caption_justify = str(goal), "left"
    for each in sorted(regret.settings, key=lambda each: decides.effects[decides.settings.index(each.key)]):
        against = decides.difference(regret.best.key, each.key)
        marks = [name for name, it in (("best", regret.best), ("chosen", regret.chosen)) if it.key == each.key]
        table.add_row(
            "\n= ".join(map(label, each.cells)),
            _objective(regret, evidence.raw, each),
            _objective(regret, evidence.corrected, each) if evidence.corrected is not None else "",
            "" if each.key == regret.best.key else _share(Interval(*map(_as_share, _numbers(against)))),
            "" if not goal.limits else "kept" if each.worst_ratio <= 1.0 else "missed",
            ", ".join(marks),
        )
    console.print(table)
    for cell, why in regret.failed:
        console.print(f"{label(cell)} failed: {why}", style="yellow", soft_wrap=True)
    if regret.noise is not None:
        console.print(
            f"runs of equal settings in one round differ by {regret.noise.sd:.1%} (standard deviation, "
            f"{regret.noise.degrees} degrees of freedom): that is the machine alone",
            soft_wrap=True,
        )
    for name, figures in (("raw", evidence.raw), ("corrected for the machine's pace", evidence.corrected)):
        if figures is not None:
            console.print(
                f"{name}: worse than the best by {_share(regret.lost_by(figures))}; a run differs from the next in its "
                f"round by {figures.sd:.1%}",
                soft_wrap=True,
            )
    console.print(evidence.why, soft_wrap=True)
    style = {Verdict.MET: "green", Verdict.MISSED: "red", Verdict.OPEN: "yellow"}[regret.verdict]
    console.print(
        f"within {MOST_REGRET:.0%} of the best: {regret.verdict.value}: {_share(regret.lost)}",
        style=style,
        soft_wrap=True,
    )
    took = f"{format_seconds(regret.tuner_seconds)} of machine time, the grid {format_seconds(regret.grid_seconds)}"
    console.print(
        f"the tuner took {took}: {regret.share:.2f} of it; at most {MOST_SHARE:.2g} is asked",
        style="green" if regret.share <= MOST_SHARE else "red",
        soft_wrap=True,
    )


def _objective(regret: Regret, figures: Blocked, setting: Setting) -> str:
    found = regret.objective(figures, setting)
    return format_seconds(found) if regret.goal.objective.statistic is not None else f"{found:.4g}"


def _as_share(logarithm: float | None) -> float:
    return expm1(logarithm) if logarithm is not None else nan


def _share(lost: Interval) -> str:
    if lost.low is None or lost.high is None or lost.low != lost.low:
        return f"{lost.estimate:+.1%} (too few rounds for an interval)"
    return f"{lost.estimate:+.1%} ({lost.low:+.1%} to {lost.high:+.1%})"
