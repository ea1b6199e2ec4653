"""`evenflow bench startup` and `evenflow bench memory`: what whole processes cost in time and memory."""

from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from enum import Enum

import msgspec
from cyclopts.types import PositiveInt
from rich.console import Console
from rich.table import Table

from evenflow.bench import memory as memory_bench
from evenflow.bench import startup as startup_bench
from evenflow.cli.options import EngineOptions, Switch, refuse
from evenflow.cli.progress import model_on_disk, saying
from evenflow.cli.signals import ending_in_order
from evenflow.engine.config import EngineConfig, format_bytes
from evenflow.models.tokenizer import load_tokenizer


def startup(*, engine: EngineOptions = EngineConfig(), runs: PositiveInt = 3, json: Switch = False) -> None:
    """Time `evenflow serve` from the command to the first served token, the model being on disk.

    Parameters
    ----------
    runs
        How many starts to time; one more comes first and is not counted.
    json
        Print JSON instead of tables.
    """
    path = model_on_disk(engine.model)
    arguments = list(_arguments(engine))
    with ending_in_order(), saying(Console(stderr=True)) as progress:
        result = startup_bench.measure(path, runs=runs, serve_arguments=arguments, progress=progress)
    if json:
        _print_json(asdict(result))
        return
    table = Table("start", "ready s", "first token s", "front", "engine", box=None)
    for index, start in enumerate(result.starts):
        resident = (_bytes(start.front_bytes), _bytes(start.engine_bytes))
        table.add_row(str(index), f"{start.ready_seconds:.2f}", f"{start.first_token_seconds:.2f}", *resident)
    table.add_row("median", f"{result.ready_seconds:.2f}", f"{result.first_token_seconds:.2f}", "", "")
    Console().print(table)


def memory(*, engine: EngineOptions = EngineConfig(), json: Switch = False) -> None:
    """Measure what the engine process holds in memory, once loaded and with a full KV cache (256 MiB if not given).

    Parameters
    ----------
    json
        Print JSON instead of tables.
    """
    refuse(engine, "prefix_caching", "executor")
    path = model_on_disk(engine.model)
    config = replace(engine, model=str(path))
    with ending_in_order(), saying(Console(stderr=True)) as progress:
        cost = memory_bench.measure(config, load_tokenizer(path), progress=progress)
    if json:
        _print_json(asdict(cost))
        return
    dtype, quantize, kv_dtype = (cost.settings[name].split()[0] for name in ("dtype", "quantize", "kv_dtype"))
    table = Table("memory of the engine process", "resident", "limit", "", box=None)
    table.add_row("weights", format_bytes(cost.weights), "", f"{dtype}, quantize {quantize}")
    table.add_row("KV cache", format_bytes(cost.kv_cache), "", f"{cost.kv_tokens} tokens, {kv_dtype}")
    for name, resident, limit in (
        ("once loaded", cost.loaded, cost.loaded_limit),
        ("with a full KV cache", cost.filled, cost.filled_limit),
    ):
        verdict = f"{resident / limit:.2f} of the limit: {'within' if resident <= limit else 'OVER'}"
        table.add_row(name, format_bytes(resident), format_bytes(limit), verdict)
    Console().print(table)


def _arguments(engine: EngineConfig) -> Iterator[str]:
    """The command line of what is not the default, but for the model."""
    for field in fields(engine):
        value, flag = getattr(engine, field.name), field.name.replace("_", "-")
        if field.name == "model" or value == field.default:
            continue
        if isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        else:
            yield f"--{flag}={value.value if isinstance(value, Enum) else value}"


def _bytes(num_bytes: int | None) -> str:
    return "" if num_bytes is None else format_bytes(num_bytes)


def _print_json(result: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(result)).decode())
