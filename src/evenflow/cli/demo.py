"""`evenflow demo`: a server on a real model, forty requests with the lengths of real traffic, and what became of them.

The load is the head of the Azure 2023 conversation trace, lengths scaled down so that a small machine is busy for
seconds rather than minutes. Latencies are the client's; what the steps were like comes from the server's event log.
"""

import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from cyclopts.types import PositiveFloat, PositiveInt
from rich.console import Console
from rich.live import Live

from evenflow.cli.live_table import LiveTable
from evenflow.cli.progress import is_screen, lines_every, model_on_disk, say, saying
from evenflow.cli.run_report import report
from evenflow.cli.run_watch import RunWatch
from evenflow.cli.signals import ending_in_order
from evenflow.cli.terminal import Terminal
from evenflow.core.errors import ConfigError
from evenflow.models.tokenizer import load_tokenizer
from evenflow.replay.client import run_load
from evenflow.replay.connection import parse_url
from evenflow.replay.precise_loop import run_precisely
from evenflow.replay.prompts import IdPrompts
from evenflow.replay.request import ObservedRequest, PlannedRequest
from evenflow.replay.server_process import server_process
from evenflow.replay.target import Target
from evenflow.replay.watch import Progress
from evenflow.workload.formats import azure_excerpt
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
    out, stage = Terminal(), Terminal(stderr=True)
    most = len(azure_excerpt().requests)
    if requests > most:
        raise ConfigError(f"requests must be at most {most}: that is how much of the trace comes with evenflow")
    path = model_on_disk(model)
    plans = _plans(requests, length_scale, rate_scale)
    prompts = _prompts(path, seed)
    num_in, num_out = (sum(plan.num_prompt_tokens for plan in plans), sum(plan.max_tokens for plan in plans))
    say(out, f"{len(plans)} requests over {plans[-1].send_at:.0f} s: {num_in:,} prompt tokens, {num_out:,} to generate")
    with ending_in_order(), tempfile.TemporaryDirectory(prefix="evenflow-demo-") as folder:
        log = Path(folder) / "events.jsonl"
        watch = RunWatch([ObservedRequest(plan, plan.send_at) for plan in plans], log)
        with watch:
            with server_process(_arguments(path, log)) as server:
                with saying(stage, f"starting a server on {path.name}"):
                    url = server.url()
                interrupted = _run(stage, watch, Target(parse_url(url), "demo"), plans, prompts)
            watch.look()
    for piece in report(watch):
        out.print(piece, highlight=False)
    if interrupted:
        sys.exit(_INTERRUPTED)
    if any(request.error is not None for request in watch.observed):
        sys.exit(1)


def _plans(count: int, length_scale: float, rate_scale: float) -> list[PlannedRequest]:
    head = fit_to_context(scale_lengths(azure_excerpt().head(count), length_scale), _MAX_MODEL_LEN).requests
    return [
        PlannedRequest(
            index,
            f"demo-{index:02d}",
            request.arrival_seconds / rate_scale,
            request.num_prompt_tokens,
            request.num_output_tokens,
        )
        for index, request in enumerate(head)
    ]


def _prompts(path: Path, seed: int) -> IdPrompts:
    tokenizer = load_tokenizer(path)
    return IdPrompts([i for i in range(tokenizer.vocab_size) if not tokenizer.is_special(i)], seed)


def _arguments(path: Path, log: Path) -> list[str]:
    arguments = ["--model", str(path), "--served-model-name", "demo", "--port", "0"]
    return [*arguments, "--max-model-len", str(_MAX_MODEL_LEN), "--event-log", str(log)]


def _run(stage: Console, watch: RunWatch, target: Target, plans: Sequence[PlannedRequest], prompts: IdPrompts) -> bool:
    """Whether it was interrupted: what had been sent is cut then, and what was answered stays."""

    def take(progress: Progress, now: float) -> None:
        watch.observed = progress.observed

    with _shown(stage, watch):
        try:
            outcome = run_precisely(lambda: run_load(target, plans, prompts, watch=take))
        finally:
            watch.look()
    return outcome.gave_up is not None


def _shown(stage: Console, watch: RunWatch) -> AbstractContextManager[object]:
    if is_screen(stage):
        return Live(LiveTable(watch), console=stage, refresh_per_second=_FRAMES_PER_SECOND)
    began = time.monotonic()

    def now() -> str:
        watch.look()
        counts = ", ".join(f"{count} {phase.value}" for phase, count in watch.counts().items() if count)
        return f"{time.monotonic() - began:4.0f} s: {counts}"

    return lines_every(_SECONDS_PER_LINE, stage, now)
