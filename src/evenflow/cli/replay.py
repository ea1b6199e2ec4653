"""`evenflow replay`: a trace against a server, a progress bar while it runs, a result file and a page when it has."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Group, Parameter
from rich.console import Console

from evenflow.cli.options import Switch, check_out
from evenflow.cli.replay_view import ReplayBar, say_what, show_result, show_sweep
from evenflow.cli.signals import ending_as_interrupted
from evenflow.cli.terminal import Terminal
from evenflow.core.errors import ConfigError
from evenflow.models.source import resolve_model
from evenflow.models.tokenizer import Tokenizer, load_tokenizer
from evenflow.replay.assess import Assessed, assess
from evenflow.replay.client import INTERRUPTED
from evenflow.replay.load import Load, LoadOptions
from evenflow.replay.pacing import ClosedLoop, OpenLoop, Pacing, Patience
from evenflow.replay.precise_loop import run_precisely
from evenflow.replay.preflight import Ready, counter
from evenflow.replay.recorded import open_trace
from evenflow.replay.result import Result, stem_of, write_result
from evenflow.replay.run import Replay
from evenflow.replay.run import replay as run_replay
from evenflow.replay.slo import parse_seconds
from evenflow.replay.sweep import Point, at_rates, parse_scales, sweep
from evenflow.replay.target import Endpoint
from evenflow.report.page import write_page
from evenflow.report.replay_page import replay_page
from evenflow.workload.columns import ColumnNames, parse_columns
from evenflow.workload.formats import Reading

_LOAD = Group("Trace and load", sort_key=2)
_SENDING = Group("Sending", sort_key=3)
_RESULT = Group("Result", sort_key=4)


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How to read the trace."""

    columns: str | None = None
    """Names of the file's columns, as arrival=ts,input=a,output=b,class=c,tenant=d; a known format knows its own."""
    time_unit: str | None = None
    """Unit of the trace's times, if it is not its format's own: s, ms, us or ns."""


@dataclass(frozen=True, slots=True)
class SendOptions:
    """How requests are sent."""

    users: int | None = None
    """Closed loop: so many users, each of whom waits for the answer before asking again."""
    think: str = "0s"
    """Closed loop: how long a user thinks between an answer and the next request."""
    duration: str | None = None
    """Closed loop: begin no request after this time."""
    max_concurrency: int | None = None
    """Open loop: at most so many requests in flight. The wait for a place is part of their latency."""
    timeout: str = "120s"
    """Give a request up when nothing has come from the server for this long, or no token for five times as long."""
    model: str | None = None
    """Model to ask for; the first one that the server lists if not given."""
    endpoint: Endpoint = Endpoint.COMPLETIONS
    """completions sends token ids or text, chat one user message."""
    tokenizer: str | None = None
    """Folder or .gguf file of the served model, for servers without /tokenize and for traces that hold text."""
    body: str | None = None
    """More fields for every request's body, as a JSON object; null leaves a field out."""
    api_key: Annotated[str | None, Parameter(env_var="EVENFLOW_API_KEY", show_default=False)] = None
    """Key to send as a bearer token."""
    content_seed: int | None = None
    """Seed of the prompts' content. A new one each time if not given: the same content twice meets a warm cache."""

    def pacing(self) -> Pacing:
        if self.users is None:
            if self.duration is not None or self.think != "0s":
                raise ConfigError("duration and think are for a closed loop (--users); an open loop takes --window")
            return OpenLoop(self.max_concurrency)
        if self.max_concurrency is not None:
            raise ConfigError("max_concurrency is for an open loop; a closed loop has as many in flight as users")
        seconds = parse_seconds(self.duration, "duration") if self.duration is not None else None
        return ClosedLoop(self.users, parse_seconds(self.think, "think"), seconds)

    def fields(self) -> tuple[tuple[str, object], ...]:
        if self.body is None:
            return ()
        try:
            return tuple(msgspec.json.decode(self.body, type=dict[str, object]).items())
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ConfigError(f"body must be a JSON object, such as '{{\"top_p\": 0.9}}': {error}") from None


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """What is measured, and where it goes."""

    slo: str | None = None
    """Objectives of each request, as ttft=1s,itl=150ms; with class: in front for one class. Their goodput is shown."""
    warm_up: str | None = None
    """Cut so much off the beginning; a tenth of a run of 20 s and more if not given."""
    out: Path | None = None
    """Where the result goes: OUT.json and OUT.html. replay-DATE-TIME if not given."""
    rate_scales: str | None = None
    """Replay at several rates, one run after the other, as 0.5,1,2: factors as of --rate-scale."""
    compress: Switch = False
    """Write OUT.json.gz instead."""


@dataclass(frozen=True, slots=True)
class Options:
    file: FileOptions
    load: LoadOptions
    send: SendOptions
    report: ReportOptions


def replay(
    *,
    trace: Path,
    url: str,
    file: Annotated[FileOptions, Parameter(name="*", group=_LOAD)] = FileOptions(),
    load: Annotated[LoadOptions, Parameter(name="*", group=_LOAD)] = LoadOptions(),
    send: Annotated[SendOptions, Parameter(name="*", group=_SENDING)] = SendOptions(),
    report: Annotated[ReportOptions, Parameter(name="*", group=_RESULT)] = ReportOptions(),
) -> None:
    """Replay a trace of real traffic against any OpenAI-compatible server and measure what its users would see.

    The status is 1 if a run is invalid: its figures are not about the load that was asked for.

    Parameters
    ----------
    trace
        Trace file, in any published format, or an event log of evenflow; .gz is unpacked.
    url
        Address of the server, such as http://127.0.0.1:8000.
    """
    out = stem_of(report.out) if report.out else Path(f"replay-{datetime.now(UTC):%Y%m%d-%H%M%S}")
    if not out.absolute().parent.is_dir():
        raise ConfigError(f"out must be in a folder that exists; {out.parent} does not")
    suffix = ".json.gz" if report.compress else ".json"
    check_out(*_paths(out, suffix), inputs=[trace])
    what = _what(out.name, url, trace, Options(file, load, send, report))
    console = Terminal(stderr=True)
    console.print(what.trace.describe(), soft_wrap=True)
    points = [what] if report.rate_scales is None else at_rates(what, parse_scales(report.rate_scales))
    done = []
    with ending_as_interrupted():
        for point in sweep(points, _runner(console)):
            if point.error is not None and len(points) == 1:
                raise point.error
            done.append((point, _keep(point, out.with_name(point.what.name), suffix, console)))
            if point.result is not None and point.result.gave_up == INTERRUPTED:
                break  # whoever interrupts one run wants no other
    if len(points) > 1:
        show_sweep(done, Terminal())
    if not all(assessed is not None and assessed.verdict.valid for _, assessed in done):
        sys.exit(1)


def _what(name: str, url: str, trace: Path, options: Options) -> Replay:
    tokenizer = _tokenizer(options.send.tokenizer)
    columns = parse_columns(options.file.columns) if options.file.columns is not None else ColumnNames()
    count_tokens = counter(tokenizer) if tokenizer is not None else None
    warm_up = options.report.warm_up
    return Replay(
        name=name,
        url=url,
        trace=open_trace(trace, Reading(options.load.limit, columns, options.file.time_unit, count_tokens)),
        load=options.load,
        pacing=options.send.pacing(),
        patience=_patience(parse_seconds(options.send.timeout, "timeout")),
        model=options.send.model,
        endpoint=options.send.endpoint,
        api_key=options.send.api_key,
        fields=options.send.fields(),
        tokenizer=tokenizer,
        content_seed=options.send.content_seed,
        warm_up_seconds=parse_seconds(warm_up, "warm_up") if warm_up is not None else None,
        slo=options.report.slo,
    )


def _patience(silence_seconds: float) -> Patience:
    usual = Patience()
    factor = usual.token_seconds / usual.silence_seconds
    return replace(usual, silence_seconds=silence_seconds, token_seconds=factor * silence_seconds)


def _runner(console: Console) -> Callable[[Replay], Result]:
    def run(what: Replay) -> Result:
        with ReplayBar(console) as bar:

            def announce(ready: Ready, load: Load) -> None:
                say_what(console, what, ready, load)

            return run_precisely(lambda: run_replay(what, announce=announce, watch=bar.show))

    return run


def _keep(point: Point, out: Path, suffix: str, console: Console) -> Assessed | None:
    """Writes and shows a result, if there is one."""
    if point.result is None:
        console.print(f"{point.what.name}: {point.error}", style="red", soft_wrap=True)
        return None
    assessed = assess(point.result)
    paths = _paths(out, suffix)
    show_result(assessed, Terminal())  # first: it is seen even if the disk is full
    write_result(assessed.result, {"measured": assessed.measured, "verdict": assessed.verdict}, paths[0])
    write_page(replay_page(assessed), paths[1])
    console.print(f"{paths[0]} has every request, {paths[1]} shows them", soft_wrap=True)
    return assessed


def _paths(out: Path, suffix: str) -> tuple[Path, Path]:
    return out.with_name(out.name + suffix), out.with_name(out.name + ".html")


def _tokenizer(name: str | None) -> Tokenizer | None:
    return load_tokenizer(resolve_model(name)) if name is not None else None
