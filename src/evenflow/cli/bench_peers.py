"""`evenflow bench peers`: the same work for evenflow and for other engines on this machine, and how they compare."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated

import msgspec
from cyclopts import Parameter
from cyclopts.types import PositiveFloat, PositiveInt
from rich.console import Console
from rich.table import Table

from evenflow.bench.peers.contenders import STANDARD_TABLE, Contender, LeftOut, Place, Workload, read_contenders
from evenflow.bench.peers.engines import Limits
from evenflow.bench.peers.figures import Entry, Results
from evenflow.bench.peers.ratios import Ratio, ratios
from evenflow.bench.peers.run import Settings, compare
from evenflow.bench.peers.workloads import quick as quick_work
from evenflow.bench.peers.workloads import whole
from evenflow.cli.progress import model_on_disk
from evenflow.core.errors import ConfigError
from evenflow.engine.config import EngineConfig, format_bytes
from evenflow.models.tokenizer import load_tokenizer
from evenflow.observe.tails import Tail
from evenflow.workload.peer_format import PeerWorkload, generate, read_workload

_WIDTH = 160  # of tables that go to a file


@dataclass(frozen=True, slots=True)
class PeersOptions:
    """Who takes part in what."""

    peers_dir: Annotated[Path | None, Parameter(env_var="EVENFLOW_PEERS_DIR")] = None
    """Folder with the other engines and their models, laid out as docs/benchmarks.md says."""
    table: Path = STANDARD_TABLE
    """Table of contenders in TOML: how each is started. The one that comes with evenflow, if not given."""
    only: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = ()
    """Names of contenders that take part; all of the table that are installed, if not given."""
    workloads: Annotated[tuple[Workload, ...], Parameter(consume_multiple=True)] = tuple(Workload)
    """What they are given."""
    rounds: PositiveInt = 3
    """Turns of each in each workload; figures are medians over them."""
    rates: Annotated[tuple[PositiveFloat, ...], Parameter(consume_multiple=True)] = (0.6, 0.9)
    """Rates of w3, as shares of the best peer's request rate in w1."""
    peak_rate: PositiveFloat | None = None
    """That request rate, where w1 is not among the workloads."""
    model: str = EngineConfig().model
    """What evenflow runs; as for `evenflow serve`."""
    workload_file: Path | None = None
    """JSON file with w1, w2 and w3; the standard one (seed 0) is generated if none is given."""
    threads: PositiveInt | None = None
    """Threads of every contender, one to a core; every core, if not given."""
    time_limit: PositiveFloat = 600.0
    """Seconds after which a start, or one pass over a workload, has failed."""
    quick: bool = False
    """One round of little work, to see that everything runs. The figures mean nothing."""
    json: bool = False
    """Print JSON instead of tables."""


def peers(*, options: Annotated[PeersOptions, Parameter(name="*")] = PeersOptions()) -> None:
    """Run the same work on evenflow and on other engines, in turns, and print figures and ratios."""
    place = Place(options.peers_dir, model_on_disk(options.model), _cpus(options.threads))
    contenders, left_out = _chosen(*read_contenders(options.table, place), options.only)
    settings = Settings(
        workloads=frozenset(options.workloads),
        rounds=1 if options.quick else options.rounds,
        cpus=place.cpus,
        rates=options.rates,
        peak_rate=options.peak_rate,
        limits=Limits(options.time_limit, options.time_limit),
        quick=options.quick,
    )
    workload = _workload(options, place.model)
    work = quick_work(workload) if options.quick else whole(workload)
    with _ending_children(), _progress() as progress:
        results = compare(contenders, left_out, work, settings, progress)
    found = ratios(results.entries)
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(asdict(results) | {"ratios": found})).decode())
    else:
        _show(results, found)
    if any(entry.failure is not None for entry in results.entries):
        sys.exit(1)


def _cpus(threads: int | None) -> tuple[int, ...]:
    here = sorted(os.sched_getaffinity(0))
    if threads is not None and threads > len(here):
        raise ConfigError(f"threads must be at most {len(here)}, one to a core of this machine, not {threads}")
    return tuple(here[:threads])


def _chosen(
    contenders: Sequence[Contender], left_out: Sequence[LeftOut], only: Sequence[str]
) -> tuple[list[Contender], list[LeftOut]]:
    known = {each.name for each in contenders} | {each.name for each in left_out}
    for name in only:
        if name not in known:
            raise ConfigError(f"{name} is not in the table of contenders; there are {', '.join(sorted(known))}")
    wanted = set(only) or known
    return [each for each in contenders if each.name in wanted], [each for each in left_out if each.name in wanted]


def _workload(options: PeersOptions, model: Path) -> PeerWorkload:
    if options.workload_file is not None:
        return read_workload(options.workload_file)
    return generate(load_tokenizer(model))


@contextmanager
def _ending_children() -> Iterator[None]:
    """A termination unwinds like an interrupt, so that no paused process is left behind."""

    def unwind(number: int, frame: FrameType | None) -> None:
        print(f"evenflow: ended by {signal.Signals(number).name}", file=sys.stderr)
        raise KeyboardInterrupt

    before = {
        number: signal.signal(number, unwind)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN  # nohup
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """In place on a terminal; line by line elsewhere, because this takes minutes."""
    console = Console(stderr=True)
    if not console.is_terminal:
        began = time.monotonic()
        yield lambda what: print(f"{time.monotonic() - began:6.0f} s  {what}", file=sys.stderr, flush=True)
        return
    with console.status("") as status:
        yield status.update


# ---- what was found ----------------------------------------------------------------------------------------------


def _show(results: Results, found: Sequence[Ratio]) -> None:
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH
    machine = results.machine
    print(f"{machine.processor}, {format_bytes(machine.memory_bytes)}; {', '.join(machine.instructions)}")
    print(
        f"{results.threads} threads each, medians of {results.rounds} rounds, in turns; others: the largest share of "
        "the machine that anybody else took in a turn"
    )
    if results.quick:
        print("Quick: these figures mean nothing but that everything runs.")
    for table in (_offline_table(results.entries), _online_table(results.entries), _context_table(results.entries)):
        if table.row_count:
            print()
            console.print(table)
    if found:
        print()
        console.print(_ratio_table(found))
    print()
    for entry in results.entries:
        if entry.failure is not None:
            print(f"{entry.name} failed: {entry.failure}")
    for each in results.left_out:
        print(f"{each.name} was left out: {each.reason}")


def _offline_table(entries: Sequence[Entry]) -> Table:
    table = Table(
        *(
            "offline",
            "W1 s",
            "out tok/s",
            "(lowest-highest)",
            "of floor",
            "W2 TTFT ms",
            "ms/token",
            "long tok/s",
            "start s",
            "others",
        ),
        box=None,
    )
    for entry in entries:
        w1, w2, long = entry.w1, entry.w2, entry.long
        if w1 is None and w2 is None and long is None:
            continue
        fraction = None if w1 is None else w1.share_of_products
        first = "" if w1 is None or entry.first_requests is None else f" (first {w1.requests})"
        table.add_row(
            entry.name,
            "" if w1 is None else f"{w1.seconds:.2f}{first}",
            "" if w1 is None else f"{w1.output_tokens_per_second:.0f}",
            ""
            if w1 is None
            else f"{w1.output_tokens / max(w1.wall_seconds):.0f}-{w1.output_tokens / min(w1.wall_seconds):.0f}",
            "" if fraction is None else f"{fraction:.0%}",
            "" if w2 is None else f"{w2.ttft_ms:.1f}",
            "" if w2 is None else f"{w2.ms_per_token:.2f}",
            "" if long is None else f"{long.total_tokens_per_second:.0f}",
            "" if entry.start_seconds is None else f"{entry.start_seconds:.1f}",
            "" if entry.others is None else f"{entry.others:.0%}",
        )
    return table


def _online_table(entries: Sequence[Entry]) -> Table:
    table = Table(
        *("W3", "requests/s", "TTFT P50 ms", "P95", "P99", "ITL P50 ms", "P95", "P99", "start s", "others"), box=None
    )
    for entry in entries:
        for share, latency in entry.online.items():
            start = "" if entry.server_start_seconds is None else f"{entry.server_start_seconds:.1f}"
            others = "" if entry.others is None else f"{entry.others:.0%}"
            rate = f"{latency.rate:.2f} ({share:g})"
            table.add_row(entry.name, rate, *_tail(latency.ttft), *_tail(latency.itl), start, others)
    return table


def _tail(tail: Tail) -> list[str]:
    return ["too few" if value is None else f"{value:.1f}" for value in tail.percentiles]


def _context_table(entries: Sequence[Entry]) -> Table:
    rows = [entry for entry in entries if entry.context]
    contexts = [time.context for time in rows[0].context] if rows else []
    table = Table("ms per decode step, by context", *map(str, contexts), box=None)
    for entry in rows:
        table.add_row(
            f"{entry.name}, {entry.context[0].running} running",
            *(f"{time.milliseconds:.2f}" for time in entry.context),
        )
    return table


def _ratio_table(found: Sequence[Ratio]) -> Table:
    table = Table("evenflow against the best", "", "evenflow", "best", "times better", "asked", box=None)
    for ratio in found:
        table.add_row(
            ratio.what,
            ratio.rival or "",
            f"{ratio.own_figure:.4g}",
            "" if ratio.rival_figure is None else f"{ratio.rival_figure:.4g}",
            f"{ratio.ratio:.2f}",
            f"{ratio.goal:.2f}" + ("" if ratio.held else "  short"),
        )
    return table
