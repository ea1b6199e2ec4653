"""`evenflow bench recording`: what the event log and the folds cost."""

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

import msgspec
from cyclopts.types import PositiveInt
from rich.console import Console

from evenflow.bench import recording as inline
from evenflow.bench import served_recording as served
from evenflow.bench.recording import RecordingCost
from evenflow.bench.served_recording import MOST_LOSS, MOST_MICROSECONDS, ServedRecording
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
    only: Literal["served", "inline"] | None = None,
    json: Switch = False,
) -> None:
    """Run W1 with and without the event log and all folds, in turns, and print what recording costs.

    Twice: as a server does it, between an engine's process and its front's, which is what the limits are held
    against; and with everything in the engine's way, in one process, which is the most that it could be.

    Parameters
    ----------
    workload
        JSON file with the requests as w1; the standard ones are generated if none is given.
    rounds
        How many times both run all of W1; figures are medians.
    limit
        Only so many requests of W1, from the first on.
    only
        Only as a server does it (served), or only with everything in the engine's way (inline).
    json
        Print JSON.
    """
    path = model_on_disk(engine.model)
    config = replace(engine, model=str(path))
    with saying(Console(stderr=True)) as progress, tempfile.TemporaryDirectory() as folder:
        load, found = w1_of(workload, path, progress)[:limit], dict[str, ServedRecording | RecordingCost]()
        if only != "inline":
            tokenizer = load_tokenizer(path)
            found["served"] = asyncio.run(
                served.measure(config, tokenizer, load, Path(folder), rounds=rounds, progress=progress)
            )
        if only != "served":
            log = Path(folder) / "events.jsonl"
            found["inline"] = inline.measure(config, load, log, rounds=rounds, progress=progress)
    if json:
        whole = {name: asdict(cost) | {"met": cost.met} for name, cost in found.items()}
        print(msgspec.json.format(msgspec.json.encode(whole)).decode())
        return
    print("\n\n".join(_served(cost) if isinstance(cost, ServedRecording) else _inline(cost) for cost in found.values()))


def w1_of(workload: Path | None, model: Path, progress: Callable[[str], None]) -> Sequence[PeerRequest]:
    if workload is not None:
        return read_workload(workload).w1
    progress("generating the standard workload")
    return generate(load_tokenizer(model)).w1


def _rates(cost: ServedRecording | RecordingCost) -> str:
    plain, recording = cost.plain_tokens_per_second, cost.recording_tokens_per_second
    return f"W1: {plain:.1f} output tokens/s without recording, {recording:.1f} with; medians of {cost.rounds} rounds"


def _served(cost: ServedRecording) -> str:
    return "\n".join(
        (
            "as a server does it: engine and front are two processes, and the front records (held against the limits)",
            _rates(cost),
            f"loss: {cost.loss:.2%} (asked: at most {MOST_LOSS:.0%})",
            f"a step of the engine waits for {cost.engine_us:.1f} us (asked: at most {MOST_MICROSECONDS:.0f} us): "
            f"until its events are made {cost.making_us:.1f} us, packed {cost.packing_us:.1f} us; {cost.steps} steps",
            f"the front, beside the next step: {cost.front_us:.1f} us of processor time more per step, of which the "
            f"log is {cost.log_us:.1f} us, the folds {cost.folds_us:.1f} us",
        )
    )


def _inline(cost: RecordingCost) -> str:
    return "\n".join(
        (
            "all of it in the engine's way, in one process (stricter: a server's engine does not wait for this)",
            _rates(cost),
            f"loss: {cost.loss:.2%}",
            f"per step: {cost.us_per_step:.1f} us ({'within' if cost.met else 'over'} {MOST_MICROSECONDS:.0f} us), of "
            f"which the log {cost.log_us_per_step:.1f} us, the folds {cost.folds_us_per_step:.1f} us; "
            f"{cost.steps} steps",
            f"the same events again, without a model: {cost.warm_us_per_step:.1f} us with warm caches, "
            f"{cost.cold_us_per_step:.1f} us with empty ones",
            f"a step that only decodes {cost.decode_tokens} tokens, one of many in a row: "
            f"{cost.decode_us_per_step:.1f} us",
            f"the log has {cost.log_bytes_per_step:.0f} bytes per step",
        )
    )
