"""`evenflow bench floor`: how much of the steps of W1 the model's matrix products are."""

from dataclasses import asdict, replace
from pathlib import Path

import msgspec
from cyclopts.types import PositiveInt
from rich.console import Console

from evenflow.bench.floor_share import measure
from evenflow.cli.bench_recording import w1_of
from evenflow.cli.options import EngineOptions, Switch
from evenflow.cli.progress import model_on_disk, saying
from evenflow.engine.config import EngineConfig, Quantize

_ASKED = {Quantize.INT8: 0.70, Quantize.NONE: 0.75}


def floor(
    workload: Path | None = None,
    *,
    engine: EngineOptions = EngineConfig(),
    rounds: PositiveInt = 3,
    limit: PositiveInt | None = None,
    json: Switch = False,
) -> None:
    """Run W1 in one process, after each step its matrix products alone, and print how much of the steps they are.

    Parameters
    ----------
    workload
        JSON file with the requests as w1; the standard ones are generated if none is given.
    rounds
        How many times to run all of W1; figures are medians.
    limit
        Only so many requests of W1, from the first on.
    json
        Print JSON.
    """
    path = model_on_disk(engine.model)
    with saying(Console(stderr=True)) as progress:
        requests = w1_of(workload, path, progress)[:limit]
        found = measure(replace(engine, model=str(path)), requests, rounds=rounds, progress=progress)
    if json:
        print(msgspec.json.format(msgspec.json.encode(asdict(found))).decode())
        return
    asked = _ASKED.get(engine.quantize)
    print(
        f"{found.steps} steps in {found.seconds:.2f} s, their matrix products alone in {found.floor_seconds:.2f} s; "
        f"medians of {found.rounds} rounds, in turns step by step\n"
        f"share of the products: {found.share:.1%} ({found.lowest_share:.1%} to {found.highest_share:.1%})"
        + ("" if asked is None else f"; asked for: at least {asked:.0%}")
    )
