"""`evenflow simulate`: a trace on a virtual clock, with the result file, page and event log of a live run."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from evenflow.cli.options import Switch, check_out
from evenflow.cli.progress import is_screen
from evenflow.cli.replay import FileOptions
from evenflow.cli.replay_view import show_result
from evenflow.cli.terminal import Terminal
from evenflow.core.errors import ConfigError
from evenflow.core.events import Event
from evenflow.engine.policy_choice import choose_policy
from evenflow.observe.log import EventLogWriter
from evenflow.observe.summary import format_seconds
from evenflow.replay.assess import assess
from evenflow.replay.load import Load, LoadOptions, make_load
from evenflow.replay.recorded import open_trace
from evenflow.replay.result import stem_of, write_result
from evenflow.replay.slo import parse_bounds, parse_seconds
from evenflow.report.page import write_page
from evenflow.report.replay_page import replay_page
from evenflow.simulate.catalogue import find_cost
from evenflow.simulate.config import SimulationConfig, with_settings
from evenflow.simulate.cost import StepCost
from evenflow.simulate.outcome import Simulation
from evenflow.simulate.replica import EventSink
from evenflow.simulate.run import simulate as run_simulation
from evenflow.workload.columns import ColumnNames, parse_columns
from evenflow.workload.formats import Reading

_LOAD = Group("Trace and load", sort_key=2)
_ENGINE = Group("Simulated engine", sort_key=3)
_RESULT = Group("Result", sort_key=4)


@dataclass(frozen=True, slots=True)
class SimulatedEngine:
    """What is simulated."""

    set: tuple[str, ...] = ()
    """Settings as name=value, with commas between: policy, max_num_seqs, max_num_batched_tokens, block_size,
    num_blocks, num_host_blocks, prefix_caching, watermark, max_model_len."""
    policy_set: tuple[str, ...] = ()
    """One setting of the policy as name=value; may be given several times."""
    replicas: int = 1
    """So many engines, each with its own memory."""
    router: str = "round-robin"
    """Which of them a request goes to: round-robin, least-outstanding-tokens or prefix-aware."""
    scatter_seed: int = 0
    """Seed of how step times scatter."""
    force: Switch = False
    """Use a cost that was measured on another machine or with another evenflow; the result says so."""

    def config(self) -> SimulationConfig:
        settings = [part for each in self.set for part in each.split(",") if part.strip()]
        config = with_settings(SimulationConfig(), settings)
        if not self.policy_set:
            return config
        assert isinstance(config.policy, str)
        spec = choose_policy(config.policy, self.policy_set)
        return with_settings(SimulationConfig(policy=spec), [s for s in settings if not s.strip().startswith("policy")])


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """What is measured, and where it goes."""

    slo: str | None = None
    """Objectives of each request, as ttft=1s,itl=150ms; with class: in front for one class. Their goodput is shown."""
    warm_up: str | None = None
    """Cut so much off the beginning; a tenth of a run of 20 s and more if not given."""
    out: Path | None = None
    """Where the result goes: OUT.json and OUT.html. simulation-DATE-TIME if not given."""
    log: Path | None = None
    """Write the event log of every step to this file; with several replicas, one file each."""
    compress: Switch = False
    """Write OUT.json.gz instead."""


def simulate(
    *,
    trace: Path,
    cost: str,
    file: Annotated[FileOptions, Parameter(name="*", group=_LOAD)] = FileOptions(),
    load: Annotated[LoadOptions, Parameter(name="*", group=_LOAD)] = LoadOptions(),
    engine: Annotated[SimulatedEngine, Parameter(name="*", group=_ENGINE)] = SimulatedEngine(),
    report: Annotated[SimulationReport, Parameter(name="*", group=_RESULT)] = SimulationReport(),
) -> None:
    """Run a trace through the scheduler on a virtual clock, and measure what users would see.

    Parameters
    ----------
    trace
        Trace file, in any published format, or an event log of evenflow; .gz is unpacked.
    cost
        Cost file of `evenflow calibrate`, or the name of one that comes with evenflow (`evenflow costs`).
    """
    out = stem_of(report.out) if report.out else Path(f"simulation-{datetime.now(UTC):%Y%m%d-%H%M%S}")
    if not out.absolute().parent.is_dir():
        raise ConfigError(f"out must be in a folder that exists; {out.parent} does not")
    suffix = ".json.gz" if report.compress else ".json"
    check_out(out.with_name(out.name + suffix), out.with_name(out.name + ".html"), inputs=[trace, Path(cost)])
    if report.slo is not None:
        parse_bounds(report.slo)
    step_cost = find_cost(cost, force=engine.force)
    config = engine.config()
    made = _load(trace, file, load, config, step_cost)
    console = Terminal(stderr=True)
    with ExitStack() as stack:
        sink = stack.enter_context(_log(report.log, engine.replicas)) if report.log is not None else None
        bar = stack.enter_context(_bar(console, len(made.plans)))
        done = run_simulation(
            made.plans,
            step_cost,
            config,
            seed=engine.scatter_seed,
            replicas=engine.replicas,
            router=engine.router,
            name=out.name,
            sink=sink,
            load=made.facts,
            notes=made.notes,
            slo=report.slo,
            warm_up_seconds=parse_seconds(report.warm_up, "warm_up") if report.warm_up is not None else None,
            progress=lambda num, now: bar.update(bar.task_ids[0], completed=num, now=f"{now:.0f} s simulated"),
        )
    _show(done, out, suffix, report.log)


def _load(trace: Path, file: FileOptions, load: LoadOptions, config: SimulationConfig, step_cost: StepCost) -> Load:
    columns = parse_columns(file.columns) if file.columns is not None else ColumnNames()
    read = open_trace(trace, Reading(load.limit, columns, file.time_unit, None))
    return make_load(read, load, config.resolve(step_cost.kv_tokens).max_model_len)


def _show(done: Simulation, out: Path, suffix: str, log: Path | None) -> None:
    console = Terminal()
    assessed = assess(done.result)
    paths = out.with_name(out.name + suffix), out.with_name(out.name + ".html")
    show_result(assessed, console)  # first: it is seen even if the disk is full
    write_result(assessed.result, {"measured": assessed.measured, "verdict": assessed.verdict}, paths[0])
    write_page(replay_page(assessed), paths[1])
    console.print(
        f"{done.num_steps} steps ({done.num_leapt_steps} of them in leaps), {done.num_preemptions} preemptions, "
        f"{format_seconds(done.span_seconds)} simulated in {format_seconds(done.seconds)}",
        soft_wrap=True,
    )
    for note in done.result.notes:
        console.print(f"  {note}", soft_wrap=True)
    also = f", {log} the events of every step" if log is not None else ""
    console.print(f"{paths[0]} has every request, {paths[1]} shows them{also}", soft_wrap=True)


@contextmanager
def _log(path: Path, num_replicas: int) -> Iterator[EventSink]:
    with ExitStack() as stack:
        paths = [path] if num_replicas == 1 else [path.with_suffix(f".{n}{path.suffix}") for n in range(num_replicas)]
        writers = [stack.enter_context(EventLogWriter(each)) for each in paths]

        def write(replica: int, events: Sequence[Event]) -> None:
            writers[replica].write(events)

        yield write


@contextmanager
def _bar(console: Console, num_requests: int) -> Iterator[Progress]:
    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        *columns, TextColumn("{task.fields[now]}"), console=console, transient=True, disable=not is_screen(console)
    ) as bar:
        bar.add_task("", total=num_requests, now="")
        yield bar
