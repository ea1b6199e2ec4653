"""`evenflow bench recording`: what the event log and the folds cost."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import msgspec
from cyclopts.types import PositiveInt
from rich.console import Console

from evenflow.bench.recording import MOST_LOSS, MOST_MICROSECONDS, RecordingCost
from evenflow.bench.recording import measure as measure_recording
from evenflow.cli.options import EngineOptions, Switch
from evenflow.cli.progress import model_on_disk, saying
from evenflow.engine.config import EngineConfig
from evenflow.models.tokenizer import load_tokenizer
from evenflow.workload.peer_format import PeerRequest, generate, read_workload


def recording(
    workload: Path | None = None,
    *,
    engine: EngineOptions = EngineConfig(),
    rounds: PositiveInt = 3,
    limit: PositiveInt | None = None,
    json: Switch = False,
) -> None:
    """Run W1 with and without the event log and all folds, in turns in one process, and print what recording costs.

    Parameters
    ----------
    workload
        JSON file with the requests as w1; the standard ones are generated if none is given.
    rounds
        How many times both run all of W1; figures are medians.
    limit
        Only so many requests of W1, from the first on.
    json
        Print JSON.
    """
    path = model_on_disk(engine.model)
    with saying(Console(stderr=True)) as progress, tempfile.TemporaryDirectory() as folder:
        cost = measure_recording(
            replace(engine, model=str(path)),
            w1_of(workload, path, progress)[:limit],
            Path(folder) / "events.jsonl",
            rounds=rounds,
            progress=progress,
        )
    print(msgspec.json.format(msgspec.json.encode(asdict(cost) | {"met": cost.met})).decode() if json else _text(cost))


def w1_of(workload: Path | None, model: Path, progress: Callable[[str], None]) -> Sequence[PeerRequest]:
    if workload is not None:
        return read_workload(workload).w1
    progress("generating the standard workload")
    return generate(load_tokenizer(model)).w1


def _text(cost: RecordingCost) -> str:
    plain, recording = cost.plain_tokens_per_second, cost.recording_tokens_per_second
    return "\n".join(
        (
            f"W1: {plain:.1f} output tokens/s without recording, {recording:.1f} with; medians of {cost.rounds} rounds",
            f"loss: {cost.loss:.2%} (asked: at most {MOST_LOSS:.0%})",
            f"per step: {cost.us_per_step:.1f} us (asked: at most {MOST_MICROSECONDS:.0f} us), of which the log "
            f"{cost.log_us_per_step:.1f} us, the folds {cost.folds_us_per_step:.1f} us; {cost.steps} steps",
            f"the same events again, without a model: {cost.warm_us_per_step:.1f} us with warm caches, "
            f"{cost.cold_us_per_step:.1f} us with empty ones",
            f"a step that only decodes {cost.decode_tokens} tokens, one of many in a row: "
            f"{cost.decode_us_per_step:.1f} us",
            f"the log has {cost.log_bytes_per_step:.0f} bytes per step",
        )
    )
