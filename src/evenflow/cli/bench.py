"""`evenflow bench`: measurements of evenflow itself. Ratios in one run mean more than any single figure."""

from dataclasses import asdict, fields, replace
from pathlib import Path
from random import Random

import msgspec
from cyclopts import App
from cyclopts.types import NonNegativeInt, PositiveFloat, PositiveInt
from rich.console import Console
from rich.table import Table

from evenflow.bench import front as front_bench
from evenflow.bench import offline as offline_bench
from evenflow.bench import quality as quality_bench
from evenflow.bench import replay as replay_bench
from evenflow.bench import scheduler as scheduler_bench
from evenflow.cli.options import EngineOptions, Switch
from evenflow.cli.progress import model_on_disk, saying
from evenflow.cli.signals import ending_in_order
from evenflow.core.errors import ConfigError
from evenflow.engine.config import EngineConfig
from evenflow.models.tokenizer import load_tokenizer
from evenflow.workload.peer_format import PeerWorkload, generate, read_workload
from evenflow.workload.synthesize import RandomTokens

app = App(name="bench", help="Measure evenflow on this machine.")


@app.command
def scheduler(
    *, running: PositiveInt = 64, waiting: NonNegativeInt = 0, steps: PositiveInt = 1000, json: Switch = False
) -> None:
    """Time one step of the scheduler (schedule and update) in pure Python, without a model.

    Parameters
    ----------
    running
        How many requests are generating, a token each per step.
    waiting
        How many more are in the queue behind them.
    steps
        How many steps to time.
    json
        Print JSON instead of tables.
    """
    cost = scheduler_bench.measure(running=running, waiting=waiting, steps=steps)
    _show(asdict(cost), json)


@app.command
def offline(
    workload: Path | None = None,
    *,
    engine: EngineOptions = EngineConfig(),
    repeat: PositiveInt = 3,
    single_stream: bool = True,
    limit: PositiveInt | None = None,
    json: Switch = False,
) -> None:
    """Time many requests at once (W1) and one alone (W2), without a server, and print tokens per second.

    Prefix caching is off unless it is asked for: every pass brings the same prompts again.

    Parameters
    ----------
    workload
        JSON file with the requests as w1, w2 and w3; the standard ones are generated if none is given.
    repeat
        How many times to run all of W1; the result is the median.
    single_stream
        Measure W2 as well.
    limit
        Only so many requests of W1, from the first on.
    json
        Print JSON instead of tables.
    """
    path = model_on_disk(engine.model)
    console = Console(stderr=True)
    chosen = read_workload(workload) if workload is not None else _standard_workload(path, console)
    if limit is not None:
        chosen = replace(chosen, w1=chosen.w1[:limit])
    with saying(console) as progress:
        config = replace(engine, model=str(path))
        result = offline_bench.measure(config, chosen, repeat=repeat, single_stream=single_stream, progress=progress)
    if json:
        _print_json(asdict(result))
        return
    _show(result.settings, False)
    table = Table("W1", "wall s", "output tokens/s", "steps", "tokens per step", "preemptions", box=None)
    for index, run in enumerate(result.runs):
        per_step = (run.prompt_tokens + run.output_tokens) / run.steps
        rate = f"{run.output_tokens_per_second:.1f}"
        table.add_row(
            str(index), f"{run.wall_seconds:.2f}", rate, str(run.steps), f"{per_step:.0f}", str(run.preemptions)
        )
    Console().print(table)
    print(f"W1 median: {result.median_output_tokens_per_second:.1f} output tokens/s")
    if result.single_stream is not None:
        single = result.single_stream
        print(f"W2: first token after {single.ttft_ms:.1f} ms, then {single.ms_per_token:.2f} ms per token")


@app.command
def front(
    *,
    model: str = EngineConfig().model,
    requests: PositiveInt = 500,
    prompt_tokens: PositiveInt = 128,
    seed: int = 0,
    json: Switch = False,
) -> None:
    """Time what the HTTP server adds to the first token: the wait that a client sees minus the engine's own.

    Parameters
    ----------
    model
        What to serve; see `evenflow serve --help`.
    requests
        How many requests to send, one at a time. A P99 takes 500 at least.
    prompt_tokens
        Length of each prompt.
    seed
        Seed of the prompts' content, which is random tokens.
    json
        Print JSON instead of tables.
    """
    path = model_on_disk(model)
    rng, source = Random(seed), RandomTokens(load_tokenizer(path))
    prompts = [source.prompt(rng, prompt_tokens) for _ in range(requests + front_bench.WARM_UP_REQUESTS)]
    with ending_in_order(), saying(Console(stderr=True), f"serving {len(prompts)} requests, one at a time"):
        cost = front_bench.measure(path, prompts)
    _show(asdict(cost), json)


@app.command
def replay(
    *,
    rate: PositiveFloat = 500.0,
    seconds: PositiveFloat = 10.0,
    users: PositiveInt = 32,
    json: Switch = False,
) -> None:
    """Time the load generator on one core against a server that computes nothing: dispatch lag, requests per second.

    Parameters
    ----------
    rate
        Requests per second of the open loop.
    seconds
        How long it lasts.
    users
        Users of the closed loop, in which every request follows an answer at once.
    json
        Print JSON instead of a table.
    """
    with Console(stderr=True).status("sending to a server that computes nothing"):
        cost = replay_bench.measure(rate=rate, seconds=seconds, users=users)
    _show(asdict(cost), json)


@app.command
def quality(
    *,
    engine: EngineOptions = EngineConfig(),
    tokens: PositiveInt = 20_000,
    compare: Switch = False,
    json: Switch = False,
) -> None:
    """Measure perplexity on English text, by the same code that serves: what a number format costs in quality.

    Parameters
    ----------
    tokens
        How much of the text, rounded up to whole windows of 1,024 tokens; all of it is about 23,000.
    compare
        Measure fp32, bf16 and int8 one after the other, whatever --dtype and --quantize say.
    json
        Print JSON instead of tables.
    """
    _refuse(engine, "max_model_len", "max_num_seqs", "kv_memory", "prefix_caching")
    path = model_on_disk(engine.model)
    prompts = quality_bench.windows(load_tokenizer(path).encode(quality_bench.text()), num_tokens=tokens)
    config = replace(engine, model=str(path))
    asked = {name: quality_bench.in_format(config, name) for name in quality_bench.FORMATS} if compare else {"": config}
    measured: dict[str, quality_bench.Perplexity] = {}
    with saying(Console(stderr=True)) as progress:
        for name, each in asked.items():
            progress(f"measuring {name}".strip())
            measured[name] = quality_bench.measure(each, prompts, progress=progress)
    if json:
        everything = {"text": quality_bench.TEXT_NAME, "perplexities": list(measured.values())}
        _print_json(everything)
        return
    print(f"Text: {quality_bench.TEXT_NAME}")
    table = Table("dtype", "quantize", "tokens", "perplexity", "by the row above", "seconds", box=None)
    above: float | None = None
    for result in measured.values():
        table.add_row(
            result.settings["dtype"].split()[0],
            result.settings["quantize"],
            str(result.tokens),
            f"{result.perplexity:.4f}",
            "" if above is None else f"{result.perplexity / above:.4f}",
            f"{result.seconds:.1f}",
        )
        above = result.perplexity
    Console().print(table)


@app.command
def profile(
    *,
    engine: EngineOptions = EngineConfig(),
    running: PositiveInt = 64,
    prefill: NonNegativeInt = 0,
    context: PositiveInt = 256,
    steps: PositiveInt = 50,
    json: Switch = False,
) -> None:
    """Show where the time of an iteration goes: scheduling, inputs, each kind of kernel, sampling, delivery.

    Parameters
    ----------
    running
        How many requests are generating, a token each per iteration.
    prefill
        How many tokens of another prompt every iteration computes beside them.
    context
        Length of the prompts of those that are generating.
    steps
        How many iterations to measure.
    json
        Print JSON instead of tables.
    """
    from evenflow.bench import profile as profile_bench  # imports torch, which the other benches need not wait for

    _refuse(engine, "max_num_seqs", "prefix_caching")
    scene = profile_bench.Scene(running=running, prefill=prefill, context=context, steps=steps)
    config = replace(engine, model=str(model_on_disk(engine.model)))
    with saying(Console(stderr=True)) as progress:
        result = profile_bench.measure(config, scene, progress=progress)
    if json:
        _print_json(asdict(result))
        return
    _show(result.settings, False)
    table = Table("part of a step", "ms", "share", box=None)
    for part, milliseconds in result.parts_ms.items():
        table.add_row(part, f"{milliseconds:.3f}", f"{milliseconds / result.step_ms:.1%}")
    table.add_row("all", f"{result.step_ms:.3f}", f"without the stopwatch {result.plain_step_ms:.3f} ms")
    Console().print(table)


def _standard_workload(path: Path, console: Console) -> PeerWorkload:
    with saying(console, "generating the workload"):
        return generate(load_tokenizer(path))


def _refuse(config: EngineConfig, *names: str) -> None:
    """What a bench chooses itself is not silently ignored."""
    for name in names:
        (default,) = (field.default for field in fields(config) if field.name == name)
        if getattr(config, name) != default:
            raise ConfigError(f"{name} is what this bench chooses itself; leave --{name.replace('_', '-')} out")


def _print_json(result: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(result)).decode())


def _show(values: dict[str, object] | dict[str, str], json: bool) -> None:
    if json:
        print(msgspec.json.encode(values).decode())
        return
    table = Table("what", "value", show_header=False, box=None)
    for name, value in values.items():
        table.add_row(name, str(value))
    Console().print(table)
