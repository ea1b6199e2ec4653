"""`evenflow demo`: a server on a real model, forty requests with the lengths of real traffic, and what became of them.

The load is the head of the Azure 2023 conversation trace, lengths scaled down so that a small machine is busy for
seconds rather than minutes. Latencies are the client's; what the steps were like comes from the server's event log.
"""

import asyncio
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from cyclopts.types import PositiveFloat, PositiveInt
from rich.console import Console
from rich.live import Live
from rich.table import Table

from evenflow.cli.live_table import LiveTable
from evenflow.cli.progress import model_on_disk
from evenflow.core.errors import ConfigError
from evenflow.core.events import Event, Preempted, StepRecord
from evenflow.models.tokenizer import load_tokenizer
from evenflow.observe.log import read_log
from evenflow.observe.summary import format_seconds
from evenflow.observe.tails import tail_of
from evenflow.replay.client import ObservedRequest, PlannedRequest, run_load
from evenflow.replay.server_process import server_process
from evenflow.workload.formats import azure_excerpt
from evenflow.workload.synthesize import RandomTokens
from evenflow.workload.transform import fit_to_context, scale_lengths

_MAX_MODEL_LEN = 2048
_LINES_AROUND_TABLE = 6


def demo(
    *,
    model: str = "smollm2-135m",
    requests: PositiveInt = 40,
    length_scale: PositiveFloat = 0.25,
    rate_scale: PositiveFloat = 1.0,
    seed: int = 0,
) -> None:
    """Serve a model, replay the head of a real trace against it, and show how the requests shared the iterations.

    Parameters
    ----------
    model
        What to serve; as for `evenflow serve`.
    requests
        How many requests of the trace to send (at most 200).
    length_scale
        Factor on prompt and output lengths.
    rate_scale
        Factor on the arrival rate.
    seed
        Seed of the prompts' content.
    """
    console = Console()
    most = len(azure_excerpt().requests)
    if requests > most:
        raise ConfigError(f"requests must be at most {most}: that is how much of the trace comes with evenflow")
    path = model_on_disk(model)
    plans = _plans(path, requests, length_scale, rate_scale, seed)
    tokens = sum(len(plan.prompt_token_ids) for plan in plans)
    console.print(
        f"{len(plans)} requests over {plans[-1].send_at:.0f} s: {tokens} prompt tokens, "
        f"{sum(plan.max_tokens for plan in plans)} output tokens",
        highlight=False,
    )
    with tempfile.TemporaryDirectory(prefix="evenflow-demo-") as folder:
        log = Path(folder) / "events.jsonl"
        with server_process(_arguments(path, log)) as server:
            with console.status("starting the server"):
                url = server.url()
            observed = _run(console, url, plans)
        if not console.is_terminal:
            console.print()  # the last frame of a live display ends without a line break there
        with read_log(log) as events:
            steps = _fold(events)
    failed = [request for request in observed if request.error is not None]
    for request in failed:
        console.print(f"{request.plan.request_id} failed: {request.error}", style="red")
    console.print(_latencies(observed))
    console.print(steps.describe(), highlight=False)
    if failed:
        sys.exit(1)


def _plans(path: Path, count: int, length_scale: float, rate_scale: float, seed: int) -> list[PlannedRequest]:
    head = fit_to_context(scale_lengths(azure_excerpt().head(count), length_scale), _MAX_MODEL_LEN).requests
    rng, source = Random(seed), RandomTokens(load_tokenizer(path))
    return [
        PlannedRequest(
            f"demo-{index:02d}",
            request.arrival_seconds / rate_scale,
            source.prompt(rng, request.num_prompt_tokens),
            request.num_output_tokens,
        )
        for index, request in enumerate(head)
    ]


def _arguments(path: Path, log: Path) -> list[str]:
    arguments = ["--model", str(path), "--served-model-name", "demo", "--port", "0"]
    return [*arguments, "--max-model-len", str(_MAX_MODEL_LEN), "--event-log", str(log)]


def _run(console: Console, url: str, plans: Sequence[PlannedRequest]) -> list[ObservedRequest]:
    with Live(console=console, refresh_per_second=8, transient=console.is_terminal) as live:

        def show(observed: Sequence[ObservedRequest]) -> None:
            live.update(LiveTable(observed, max(5, console.size.height - _LINES_AROUND_TABLE)))

        return asyncio.run(run_load(url, "demo", plans, on_start=show))


def _latencies(observed: Sequence[ObservedRequest]) -> Table:
    good = [request for request in observed if request.error is None]
    rows = (
        ("TTFT", [request.ttft for request in good if request.ttft is not None]),
        ("ITL", [gap for request in good for gap in request.gaps]),
        ("E2E", [request.e2e for request in good if request.e2e is not None]),
    )
    table = Table("", "n", "P50", "P95", "P99", "max", box=None)
    for name, values in rows:
        tail = tail_of(values)
        shown = ["withheld" if value is None else format_seconds(value) for value in tail.percentiles]
        table.add_row(name, str(tail.num_observations), *shown, format_seconds(max(values)) if values else "-")
    table.caption = "withheld: fewer than 5 observations would lie above it"
    return table


@dataclass(slots=True)
class _Steps:
    tokens: list[int]
    shared: int
    mixed: int
    preemptions: int

    def describe(self) -> str:
        tail, num = tail_of(self.tokens), len(self.tokens)
        p50, p95, p99 = ("withheld" if value is None else f"{value:.0f}" for value in tail.percentiles)
        return (
            f"{num} steps, tokens per step P50 {p50}, P95 {p95}, P99 {p99}, max {max(self.tokens, default=0)}\n"
            f"{self.shared} steps ran several requests at once, {self.mixed} ran prefill beside decode\n"
            f"{self.preemptions} preemptions"
        )


def _fold(events: Iterable[Event]) -> _Steps:
    steps = _Steps([], 0, 0, 0)
    for event in events:
        match event:
            case StepRecord():
                steps.tokens.append(event.prefill_tokens + event.decode_tokens)
                steps.shared += event.num_scheduled > 1
                steps.mixed += event.prefill_tokens > 0 and event.decode_tokens > 0
            case Preempted():
                steps.preemptions += 1
            case _:
                pass
    return steps
