"""`evenflow bench tuner`: the tuner's choice against a grid that is measured live as a whole."""

import json as json_module
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import PositiveFloat, PositiveInt
from rich.console import Console
from rich.table import Table

from evenflow.bench.tuner import MOST_REGRET, MOST_SHARE, Regret, measure
from evenflow.cli.options import Switch
from evenflow.cli.progress import model_on_disk, say, saying
from evenflow.cli.signals import ending_in_order
from evenflow.cli.tune import LiveUnderBar, live_engine, prepared
from evenflow.cli.tune_options import SearchOptions, TunedEngine
from evenflow.cli.tune_view import TuneView
from evenflow.core.errors import ConfigError
from evenflow.engine.config import EngineConfig
from evenflow.observe.summary import format_seconds
from evenflow.replay.load import LoadOptions
from evenflow.simulate.calibrate import calibrate
from evenflow.simulate.cost_file import save_cost
from evenflow.tune.telling import objective_text
from evenflow.workload.formats import azure_excerpt

_MAX_MODEL_LEN = 2048
VARY = (
    "max_num_batched_tokens=64,256",
    "max_num_seqs=4,16,32",
    "policy=vllm,sglang",
)


def tuner(
    *,
    cost: str | None = None,
    objective: str = "e2e_mean",
    slo: str | None = None,
    vary: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    rounds: PositiveInt = 3,
    max_live: PositiveInt = 3,
    max_rounds: PositiveInt = 2,
    requests: PositiveInt = 60,
    length_scale: PositiveFloat = 0.25,
    rate_scale: PositiveFloat = 1.0,
    calibration_seconds: PositiveFloat = 60.0,
    seed: int = 0,
    out: Path = Path("bench-tuner"),
    engine: Annotated[TunedEngine, Parameter(name="*")] = TunedEngine(),
    json: Switch = False,
) -> None:
    """Measure a grid of 12 cells live, let the tuner search it by itself, and compare choice and machine time.

    A run of some 40 minutes; a run that was stopped goes on where it stopped. The load is the head of the Azure 2023
    conversation trace.

    Parameters
    ----------
    cost
        Cost file of `evenflow calibrate` for this engine; the bench calibrates if not given.
    objective
        What should be best, as for `evenflow tune`.
    slo
        Limits, as for `evenflow tune`.
    vary
        Other knobs than those of the 12 cells, as for `evenflow tune`.
    rounds
        How often the grid runs every cell.
    max_live
        Most configurations that the tuner races live.
    max_rounds
        Most rounds of such a race.
    requests
        Requests of a run.
    length_scale
        Factor on the trace's lengths.
    rate_scale
        Factor on the trace's arrival rate.
    calibration_seconds
        How long to calibrate, or what it took to measure the cost that is given: it counts as the tuner's.
    seed
        Seed of simulations, of the order of runs and of the prompts' content.
    out
        Folder for all runs.
    json
        Print JSON instead of tables.
    """
    trace = azure_excerpt()
    if requests > len(trace.requests):
        raise ConfigError(f"requests must be at most {len(trace.requests)}: that is how much of the trace there is")
    trace = replace(trace, requests=trace.head(requests), num_rows=requests, dropped=())
    load = LoadOptions(length_scale=length_scale, rate_scale=rate_scale, max_model_len=_MAX_MODEL_LEN, seed=seed)
    options = SearchOptions(objective=objective, vary=vary or VARY, out=out, max_live=max_live, max_rounds=max_rounds)
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
    return {
        "goal": str(regret.found.search.goal),
        "cells": {label(each.cell): each.objective for each in regret.grid.candidates},
        "best": label(regret.best.cell),
        "chosen": label(regret.chosen.cell),
        "regret": regret.lost.estimate,
        "regret_interval": [regret.lost.low, regret.lost.high],
        "keeps_limits": regret.chosen.keeps_limits,
        "grid_seconds": regret.grid_seconds,
        "tuner_seconds": regret.tuner_seconds,
        "share": regret.share,
        "failed": {label(cell): why for cell, why in regret.failed},
    }


def _show(regret: Regret, console: Console) -> None:
    goal, label = regret.found.search.goal, regret.found.search.space.label
    table = Table("", goal.objective.title, "95 %", "limits", "", box=None, caption=str(goal), caption_justify="left")
    for each in sorted(regret.grid.candidates, key=lambda each: each.objective, reverse=goal.objective.more_is_better):
        between = f"{each.low:.4g} to {each.high:.4g}" if each.low is not None and each.high is not None else ""
        marks = [
            name for name, cell in (("best", regret.best.cell), ("chosen", regret.chosen.cell)) if cell == each.cell
        ]
        kept = "kept" if each.keeps_limits else "missed"
        text = objective_text(each, goal)
        table.add_row(label(each.cell), text, between, kept if goal.limits else "", ", ".join(marks))
    console.print(table)
    for cell, why in regret.failed:
        console.print(f"{label(cell)} failed: {why}", style="yellow", soft_wrap=True)
    lost = regret.lost
    interval = f" ({lost.low:+.1%} to {lost.high:+.1%})" if lost.low is not None and lost.high is not None else ""
    _figure(console, f"worse than the best cell by {lost.estimate:.1%}{interval}", lost.estimate, MOST_REGRET)
    took = f"{format_seconds(regret.tuner_seconds)} of machine time, the grid {format_seconds(regret.grid_seconds)}"
    _figure(console, f"the tuner took {took}: {regret.share:.2f} of it", regret.share, MOST_SHARE)


def _figure(console: Console, sentence: str, value: float, most: float) -> None:
    met = value <= most
    console.print(f"{sentence}; at most {most:.2g} is asked", style="green" if met else "red", soft_wrap=True)
