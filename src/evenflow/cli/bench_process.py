"""`evenflow bench startup` and `evenflow bench memory`: what whole processes cost in time and memory."""

from dataclasses import asdict, replace
from typing import Annotated

import msgspec
from cyclopts import Parameter
from cyclopts.types import PositiveInt
from rich.console import Console
from rich.table import Table

from evenflow.bench import memory as memory_bench
from evenflow.bench import startup as startup_bench
from evenflow.cli.progress import model_on_disk
from evenflow.engine.config import Dtype, EngineConfig, KVDtype, Quantize, format_bytes
from evenflow.models.tokenizer import load_tokenizer

_DEFAULTS = EngineConfig()


def startup(
    *,
    model: str = _DEFAULTS.model,
    dtype: Dtype = _DEFAULTS.dtype,
    quantize: Quantize = _DEFAULTS.quantize,
    kv_dtype: KVDtype = _DEFAULTS.kv_dtype,
    runs: PositiveInt = 3,
    json: bool = False,
) -> None:
    """Time `evenflow serve` from the command to the first served token, the model being on disk.

    Parameters
    ----------
    model
        What to serve; as for `evenflow serve`.
    dtype
        As for `evenflow serve`.
    quantize
        As for `evenflow serve`.
    kv_dtype
        As for `evenflow serve`.
    runs
        Starts to time; one more comes first and is not counted.
    json
        Print JSON instead of a table.
    """
    path = model_on_disk(model)
    arguments = ["--dtype", dtype.value, "--quantize", quantize.value, "--kv-dtype", kv_dtype.value]
    with Console(stderr=True).status("") as status:
        result = startup_bench.measure(path, runs=runs, serve_arguments=arguments, progress=status.update)
    if json:
        print(msgspec.json.format(msgspec.json.encode(result)).decode())
        return
    table = Table("start", "ready s", "first token s", "front", "engine", box=None)
    for index, start in enumerate(result.starts):
        resident = (_bytes(start.front_bytes), _bytes(start.engine_bytes))
        table.add_row(str(index), f"{start.ready_seconds:.2f}", f"{start.first_token_seconds:.2f}", *resident)
    table.add_row("median", f"{result.ready_seconds:.2f}", f"{result.first_token_seconds:.2f}", "", "")
    Console().print(table)


def memory(*, engine: Annotated[EngineConfig, Parameter(name="*")] = EngineConfig(), json: bool = False) -> None:
    """Measure what the engine process holds in memory, once loaded and with a full KV cache (256 MiB if not given).

    Parameters
    ----------
    engine
        The engine to measure.
    json
        Print JSON instead of a table.
    """
    path = model_on_disk(engine.model)
    with Console(stderr=True).status("") as status:
        cost = memory_bench.measure(replace(engine, model=str(path)), load_tokenizer(path), progress=status.update)
    if json:
        print(msgspec.json.format(msgspec.json.encode(asdict(cost))).decode())
        return
    dtype, quantize, kv_dtype = (cost.settings[name].split()[0] for name in ("dtype", "quantize", "kv_dtype"))
    table = Table("memory of the engine process", "resident", "limit", "", box=None)
    table.add_row("weights", format_bytes(cost.weights), "", f"{dtype}, quantize {quantize}")
    table.add_row("KV cache", format_bytes(cost.kv_cache), "", f"{cost.kv_tokens} tokens, {kv_dtype}")
    for name, resident, limit in (
        ("once loaded", cost.loaded, cost.loaded_limit),
        ("with a full KV cache", cost.filled, cost.filled_limit),
    ):
        verdict = "within" if resident <= limit else "OVER"
        table.add_row(
            name, format_bytes(resident), format_bytes(limit), f"{resident / limit:.2f} of the limit: {verdict}"
        )
    Console().print(table)


def _bytes(num_bytes: int | None) -> str:
    return "" if num_bytes is None else format_bytes(num_bytes)
