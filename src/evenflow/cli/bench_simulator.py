"""`evenflow bench simulator` and `fidelity`: how fast the simulator is, and how near to this machine."""

from dataclasses import asdict, replace
from pathlib import Path

import msgspec
from cyclopts.types import PositiveFloat, PositiveInt
from rich.console import Console
from rich.table import Table

from evenflow.bench import fidelity as fidelity_bench
from evenflow.bench import simulator as simulator_bench
from evenflow.cli.calibrate import show_cost
from evenflow.cli.options import EngineOptions, Switch
from evenflow.cli.progress import model_on_disk, saying
from evenflow.cli.validate import show_validation
from evenflow.engine.config import EngineConfig
from evenflow.workload.formats import Reading, read_trace

_ASKED = (
    ("steps/s, few streams", "steps_per_second_few", ">= 15000"),
    ("  streams a step", "streams_few", ""),
    ("steps/s, many streams", "steps_per_second_many", ""),
    ("  streams a step", "streams_many", ""),
    ("requests", "hour_requests", ""),
    ("seconds, with leaps", "hour_seconds", "<= 10 (of 19366)"),
    ("  requests/s", "hour_requests_per_second", ">= 1000"),
    ("  steps", "hour_steps", ""),
    ("  share of them in leaps", "hour_leapt_share", ""),
    ("bytes per request in flight", "bytes_per_request_in_flight", "<= 1024"),
    ("bytes per finished request", "bytes_per_finished_request", "<= 300"),
)


def simulator(
    *,
    trace: Path | None = None,
    cost: str = simulator_bench.COST,
    requests: PositiveInt = simulator_bench.HOUR_REQUESTS,
    json: Switch = False,
) -> None:
    """Measure the simulator on one core: stepping, an hour of real traffic with leaps, and memory.

    Parameters
    ----------
    trace
        The Azure conversation hour (azure_llm_2023_conv.csv.gz); a likeness of it is made if it is not given.
    cost
        Ready-made cost or cost file.
    requests
        Only so many of them.
    json
        Print JSON instead of a table.
    """
    with saying(Console(stderr=True)) as progress:
        if trace is not None:
            rows = list(read_trace(trace, Reading(limit=requests)).requests)
        else:
            rows = simulator_bench.likeness(requests)
        found = asdict(simulator_bench.measure(rows, cost_name=cost, progress=progress))
    if json:
        print(msgspec.json.encode(found).decode())
        return
    table = Table("what", "measured", "asked for", box=None)
    for title, name, asked in _ASKED:
        table.add_row(title, f"{found[name]:.4g}", asked)
    Console().print(table)


def fidelity(
    *,
    engine: EngineOptions = EngineConfig(max_num_seqs=32),
    calibrate: PositiveFloat = 150.0,
    live: PositiveFloat = 240.0,
    load: PositiveFloat = 0.7,
    length_scale: PositiveFloat = 0.25,
    turns: PositiveInt = 12,
    seed: int = 0,
    groups: Switch = False,
) -> None:
    """Calibrate, run other traffic under other settings live, simulate it; print each demand and what was reached.

    Parameters
    ----------
    calibrate
        Seconds of calibration, in all turns together.
    live
        Seconds of live traffic, in all turns together.
    load
        Share of the capacity that is offered; the demands hold up to 0.8.
    length_scale
        Factor on the lengths of the real requests, which are long for a processor.
    turns
        How often calibration and traffic change about, an even number.
    seed
        Seed of content and arrivals.
    groups
        Show every length group as well.
    """
    console = Console(highlight=False)
    path = model_on_disk(engine.model)
    with saying(Console(stderr=True)) as progress:
        found = fidelity_bench.measure(
            replace(engine, model=str(path)),
            calibrate_seconds=calibrate,
            live_seconds=live,
            load=load,
            length_scale=length_scale,
            turns=turns + turns % 2,
            seed=seed,
            progress=progress,
        )
    show_cost(found.cost, console)
    show_validation(found.validation, console, groups=groups, again=found.again)
    said = "live again: by how much one live run was off from the next, of the same requests"
    console.print(said, soft_wrap=True)
    console.print(f"offered {found.rate:.3g}/s of a capacity of {found.capacity:.3g}/s; {found.seconds:.0f} s in all")
