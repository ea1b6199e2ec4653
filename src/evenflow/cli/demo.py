"""`evenflow demo`: a server on a real model, forty requests with the lengths of real traffic, and what became of them.

The load is the head of the Azure 2023 conversation trace, lengths scaled down so that a small machine is busy for
seconds rather than minutes. Latencies are the client's; what the steps were like comes from the server's event log.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random

from cyclopts.types import PositiveFloat, PositiveInt
from rich.console import Console
from rich.live import Live

from evenflow.cli.live_table import LiveTable
from evenflow.cli.progress import is_screen, lines_every, model_on_disk, say, saying
from evenflow.cli.run_report import report
from evenflow.cli.run_watch import RunWatch
from evenflow.cli.signals import ending_in_order
from evenflow.core.errors import ConfigError
from evenflow.models.tokenizer import load_tokenizer
from evenflow.replay.client import ObservedRequest, PlannedRequest, run_load
from evenflow.replay.server_process import server_process
from evenflow.workload.formats import azure_excerpt
from evenflow.workload.synthesize import RandomTokens
from evenflow.workload.transform import fit_to_context, scale_lengths

_MAX_MODEL_LEN = 2048
_FRAMES_PER_SECOND = 8
_SECONDS_PER_LINE = 2.0
_INTERRUPTED = 130


def demo(
    *,
    model: str = "smollm2-135m",
    requests: PositiveInt = 40,
    length_scale: PositiveFloat = 0.25,
    rate_scale: PositiveFloat = 1.0,
    seed: int = 0,
) -> None:
    """Serve a model, send it requests with the lengths and times of real traffic, and watch them share iterations.

    Parameters
    ----------
    model
        What to serve; see `evenflow serve --help`.
    requests
        How many requests of the trace to send (at most 200).
    length_scale
        Factor on the trace's prompt and output lengths; 1 is the real traffic, too much for a small machine.
    rate_scale
        Factor on the trace's arrival rate; 2 sends the requests in half the time.
    seed
        Seed of the prompts' content, which is random tokens: the trace has lengths and times, but no text.
    """
    out, stage = Console(), Console(stderr=True)
    most = len(azure_excerpt().requests)
    if requests > most:
        raise ConfigError(f"requests must be at most {most}: that is how much of the trace comes with evenflow")
    path = model_on_disk(model)
    plans = _plans(path, requests, length_scale, rate_scale, seed)
    prompts = sum(len(plan.prompt_token_ids) for plan in plans)
    outputs = sum(plan.max_tokens for plan in plans)
    say(
        out, f"{len(plans)} requests over {plans[-1].send_at:.0f} s: {prompts:,} prompt tokens, {outputs:,} to generate"
    )
    with ending_in_order(), tempfile.TemporaryDirectory(prefix="evenflow-demo-") as folder:
        log = Path(folder) / "events.jsonl"
        watch = RunWatch([ObservedRequest(plan, plan.send_at) for plan in plans], log)
        with watch:
            with server_process(_arguments(path, log)) as server:
                with saying(stage, f"starting a server on {path.name}"):
                    url = server.url()
                interrupted = _run(stage, watch, url, plans)
            watch.look()
    for piece in report(watch):
        out.print(piece, highlight=False)
    if interrupted:
        sys.exit(_INTERRUPTED)
    if any(request.error is not None for request in watch.observed):
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


def _run(stage: Console, watch: RunWatch, url: str, plans: Sequence[PlannedRequest]) -> bool:
    """Whether it was interrupted: what had been sent is cut then, and what was answered stays."""

    def start(observed: Sequence[ObservedRequest]) -> None:
        watch.observed = observed

    with _shown(stage, watch):
        try:
            asyncio.run(run_load(url, "demo", plans, on_start=start))
        except KeyboardInterrupt:
            return True
        finally:
            watch.look()
        return False


def _shown(stage: Console, watch: RunWatch) -> AbstractContextManager[object]:
    if is_screen(stage):
        return Live(LiveTable(watch), console=stage, refresh_per_second=_FRAMES_PER_SECOND)
    began = time.monotonic()

    def now() -> str:
        watch.look()
        counts = ", ".join(f"{count} {phase.value}" for phase, count in watch.counts().items() if count)
        return f"{time.monotonic() - began:4.0f} s: {counts}"

    return lines_every(_SECONDS_PER_LINE, stage, now)
