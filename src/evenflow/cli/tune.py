"""`evenflow tune`: the configuration to serve a trace with, under limits on its latencies."""

import hashlib
import os
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter
from rich.console import Console

from evenflow.cli.progress import model_on_disk, say
from evenflow.cli.replay import FileOptions
from evenflow.cli.replay_view import ReplayBar
from evenflow.cli.signals import ending_in_order
from evenflow.cli.terminal import Terminal
from evenflow.cli.tune_options import SearchOptions, TunedEngine
from evenflow.cli.tune_view import TuneView, show_found
from evenflow.core.errors import ConfigError
from evenflow.engine.config import EngineConfig
from evenflow.models.source import load_model_config
from evenflow.models.tokenizer import load_tokenizer
from evenflow.observe.summary import format_seconds
from evenflow.replay.load import Load as ReplayLoad
from evenflow.replay.load import LoadOptions, make_load
from evenflow.replay.recorded import open_trace
from evenflow.replay.run import Replay
from evenflow.replay.slo import parse_seconds
from evenflow.report.page import write_page
from evenflow.simulate.catalogue import find_cost
from evenflow.simulate.config import SimulationConfig
from evenflow.simulate.cost import StepCost
from evenflow.simulate.cost_settings import different_from_log
from evenflow.tune.config_file import write_config
from evenflow.tune.grid import Load
from evenflow.tune.journal import Journal
from evenflow.tune.live import LiveEngine, LiveRun
from evenflow.tune.objective import check_classes, parse_goal
from evenflow.tune.page import tune_page
from evenflow.tune.refit import refitted
from evenflow.tune.search import Budget, Found, Search, search
from evenflow.tune.settings import Settings, legal_cells, settings_of
from evenflow.tune.settings import live as live_config
from evenflow.tune.space import make_space, shown
from evenflow.tune.telling import headline
from evenflow.workload.columns import ColumnNames, parse_columns
from evenflow.workload.formats import Reading
from evenflow.workload.trace import Trace

_LOAD = Group("Trace and load", sort_key=3)
_ENGINE = Group("Model and engine", sort_key=2)
_SEARCH = Group("Search", sort_key=1)
_WARM_UP_SHARE = 0.1
_OTHER_ENGINE = "the cost was measured with another engine than the live runs use, so the first predictions are off"


def tune(
    *,
    trace: Path,
    cost: str,
    slo: str | None = None,
    engine: Annotated[TunedEngine, Parameter(name="*", group=_ENGINE)] = TunedEngine(),
    file: Annotated[FileOptions, Parameter(name="*", group=_LOAD)] = FileOptions(),
    load: Annotated[LoadOptions, Parameter(name="*", group=_LOAD)] = LoadOptions(),
    options: Annotated[SearchOptions, Parameter(name="*", group=_SEARCH)] = SearchOptions(),
) -> None:
    """Find the configuration that serves a trace best within limits on its latencies.

    The whole grid is simulated; those that the data cannot tell from the best run live, in turns, until they can.
    The status is 1 if no configuration keeps the limits.

    Parameters
    ----------
    trace
        Trace file, in any published format, or an event log of evenflow.
    cost
        Cost file of `evenflow calibrate`, or the name of one that comes with evenflow (`evenflow costs`).
    slo
        Limits on statistics, as ttft_p95=1s,itl_p99=150ms; with class: in front for one class.
    """
    console = Terminal(stderr=True)
    out = options.out
    if not 0.0 <= options.tolerance <= 1.0:
        raise ConfigError(f"tolerance must be between 0 and 1, not {options.tolerance:g}")
    opened = open_trace(trace, _reading(file, load))
    say(console, opened.describe())
    config = engine.config(load.max_model_len)
    if not options.simulate_only and load.max_model_len is None:
        # The server would cut what is longer than the model's context; the simulation must see the same requests.
        model = load_model_config(model_on_disk(engine.model))
        load = replace(load, max_model_len=model.max_position_embeddings)
    what, planned = prepared(opened, cost, slo, load, config, options)
    facts = _facts(what, planned, config, options)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the folder {out}: {error.strerror}") from error
    journal = Journal(out / "journal.jsonl", facts)
    if journal.is_resumed:
        say(console, f"going on with the search in {out}: {len(journal.entries) - 1} things are done")
    for each in what.illegal:
        say(console, f"left out: {each.cell.key}: {each.reason}")
    with ending_in_order(), TuneView(console) as view:
        live = None
        if not options.simulate_only:
            live = LiveUnderBar(live_engine(opened, load, config, what), what.cost, out, console)
        try:
            found = search(what, journal, out, live, view)
        except (KeyboardInterrupt, SystemExit):
            say(console, f"stopped; what was done is kept in {out}, and the same command goes on from there")
            raise
    notes = planned.notes
    if live is not None and live.other_engine:
        notes = (*notes, f"{_OTHER_ENGINE}: {'; '.join(live.other_engine)}")
    _write(found, facts, notes, config, options, out)
    show_found(found, Terminal())
    say(console, f"{out / 'evenflow.toml'} is the configuration, {out / 'report.html'} says why")
    if not found.keeps_limits:
        sys.exit(1)


def prepared(
    trace: Trace, cost: str, slo: str | None, load: LoadOptions, engine: EngineConfig, options: SearchOptions
) -> tuple[Search, ReplayLoad]:
    """What is asked for, checked as a whole before anything runs. Raises EvenflowError."""
    planned = make_load(trace, load, load.max_model_len)
    step_cost = find_cost(cost, force=options.force)
    engine = replace(engine, max_model_len=load.max_model_len)
    return _search(step_cost, planned, slo, load.seed, engine, options), planned


def _reading(file: FileOptions, load: LoadOptions) -> Reading:
    columns = parse_columns(file.columns) if file.columns is not None else ColumnNames()
    return Reading(load.limit, columns, file.time_unit, None)


def _base(engine: EngineConfig, options: SearchOptions) -> SimulationConfig:
    return SimulationConfig(
        block_size=engine.block_size,
        prefix_caching=engine.prefix_caching is not False,
        watermark=engine.watermark,
        max_model_len=engine.max_model_len,
        num_blocks=options.num_blocks,
        num_host_blocks=options.num_host_blocks,
    )


def _search(
    cost: StepCost,
    planned: ReplayLoad,
    slo: str | None,
    seed: int,
    engine: EngineConfig,
    options: SearchOptions,
) -> Search:
    space = make_space(options.vary, options.space)
    cells, illegal = legal_cells(space, _base(engine, options), cost.kv_tokens)
    goal = parse_goal(options.objective, slo)
    check_classes(goal, {plan.service_class for plan in planned.plans})
    last = max(plan.send_at for plan in planned.plans)
    warm_up = parse_seconds(options.warm_up, "warm_up") if options.warm_up is not None else _WARM_UP_SHARE * last
    if last > 0.0 and warm_up >= last:
        raise ConfigError(f"warm_up must end before the last request at {last:.1f} s, not at {warm_up:g} s")
    return Search(
        space,
        cells,
        illegal,
        goal,
        Load(planned.plans, warm_up, seed),
        cost,
        options.tolerance,
        options.jobs or len(os.sched_getaffinity(0)),
        Budget(options.max_live, options.max_rounds),
    )


def _facts(what: Search, planned: ReplayLoad, engine: EngineConfig, options: SearchOptions) -> dict[str, str]:
    """Everything that a cell's run depends on, by name."""
    identity = what.cost.identity
    digest = hashlib.sha256(repr(what.cost).encode()).hexdigest()[:12]
    facts = {name: text for name, text in planned.facts.items() if name != "rows"}
    for axis in what.space.axes:
        facts[axis.name] = ", ".join(map(shown, axis.values))
    facts |= {
        "goal": str(what.goal),
        "warm-up": format_seconds(what.load.warm_up_seconds),
        "seed": str(what.load.seed),
        "cost": f"{identity.kind.value}: {identity.description or identity.machine}, {identity.model} ({digest})",
        "base": _in_words(_base(engine, options)),
        "engine": "none, simulated only" if options.simulate_only else _in_words(engine),
        "version": version("evenflow"),
    }
    return facts


def _in_words(settings: SimulationConfig | EngineConfig) -> str:
    """All but what the grid sets."""
    values = {each.name: getattr(settings, each.name) for each in fields(settings)}
    values = {name: value.value if isinstance(value, Enum) else value for name, value in values.items()}
    of_grid = ("policy", "policy_set", "max_num_seqs", "max_num_batched_tokens")
    return ", ".join(f"{name} {value}" for name, value in values.items() if value is not None and name not in of_grid)


def live_engine(trace: Trace, load: LoadOptions, engine: EngineConfig, what: Search) -> LiveEngine:
    path = model_on_disk(engine.model)
    for cell in what.cells:
        live_config(settings_of(cell), engine)  # raises what would fail only at its turn
    replay = Replay(
        name="tune",
        url="http://127.0.0.1",
        trace=trace,
        load=load,
        tokenizer=load_tokenizer(path),
        warm_up_seconds=what.load.warm_up_seconds,
    )
    return LiveEngine(replace(engine, model=str(path)), replay)


class LiveUnderBar:
    """The search's live engine, under a progress bar."""

    def __init__(self, engine: LiveEngine, cost: StepCost, folder: Path, console: Console) -> None:
        self._engine = engine
        self._cost = cost
        self.other_engine: tuple[str, ...] = ()  # than the cost was measured with
        self._folder = folder
        self._console = console

    def run(self, settings: Settings, log: Path, *, name: str, seed: int) -> LiveRun:
        with ReplayBar(self._console) as bar:
            done = self._engine.run(settings, log, name=name, seed=seed, watch=bar.show)
        for fault in done.faults:
            say(self._console, f"  caution: {fault}")
        self._compare(log)
        return done

    def _compare(self, log: Path) -> None:
        """What an engine computes with is known once it has started; all live runs have the same."""
        found = different_from_log(self._cost, log)
        if found and found != self.other_engine:
            self.other_engine = found
            say(self._console, f"  caution: {_OTHER_ENGINE}: {'; '.join(found)}")

    def refit(self, logs: Sequence[Path], cost: StepCost, stage: int) -> StepCost | None:
        return refitted(logs, cost, self._folder / f"cost-{stage}.json")


def _write(
    found: Found,
    facts: dict[str, str],
    notes: tuple[str, ...],
    engine: EngineConfig,
    options: SearchOptions,
    out: Path,
) -> None:
    settings = settings_of(found.choice.cell)
    config = live_config(settings, engine) if not options.simulate_only else None
    remarks = (
        f"Written by evenflow tune {version('evenflow')}; serve with: evenflow serve --config evenflow.toml",
        headline(found),
        f"{facts['trace']}, {facts['requests']} requests, {facts['arrivals']}; {found.search.goal}",
    )
    write_config(out / "evenflow.toml", settings, config, remarks)
    write_page(tune_page(found, facts, (*notes, *found.search.cost.notes)), out / "report.html")
