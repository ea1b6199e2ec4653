"""`evenflow bench`: measurements of evenflow itself. Ratios in one run mean more than any single figure."""

from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Annotated

import msgspec
from cyclopts import App, Parameter
from cyclopts.types import NonNegativeInt, PositiveInt
from rich.console import Console
from rich.table import Table

from evenflow.bench import front as front_bench
from evenflow.bench import offline as offline_bench
from evenflow.bench import quality as quality_bench
from evenflow.bench import scheduler as scheduler_bench
from evenflow.bench.policies.experiment import Experiment, Finding
from evenflow.bench.policies.table import EXPERIMENTS
from evenflow.cli.progress import model_on_disk
from evenflow.core.errors import ConfigError
from evenflow.core.policy.spec import PolicySpec
from evenflow.core.policy.table import policy_from_table
from evenflow.engine.config import EngineConfig
from evenflow.models.tokenizer import load_tokenizer
from evenflow.workload.peer_format import PeerWorkload, generate, read_workload
from evenflow.workload.synthesize import RandomTokens

app = App(name="bench", help="Measure evenflow on this machine.")


@app.command
def scheduler(
    *,
    running: PositiveInt = 64,
    waiting: NonNegativeInt = 0,
    steps: PositiveInt = 1000,
    tenants: PositiveInt = 1,
    policy: str | None = None,
    json: bool = False,
) -> None:
    """Time one step of the scheduler (schedule and update) in pure Python, without a model.

    Parameters
    ----------
    running
        Requests that decode.
    waiting
        Requests in the queue behind them.
    steps
        Steps to time.
    tenants
        Tenants that the requests are of, in turn.
    policy
        A preset, or "everything" (every piece that costs something, at once); plain first come first served if not given.
    json
        Print JSON instead of a table.
    """
    spec = None if policy is None else _policy(policy)
    cost = scheduler_bench.measure(running=running, waiting=waiting, steps=steps, tenants=tenants, spec=spec)
    _show(asdict(cost), json)


@app.command
def offline(
    workload: Path | None = None,
    *,
    engine: Annotated[EngineConfig, Parameter(name="*")] = EngineConfig(),
    repeat: PositiveInt = 3,
    single_stream: bool = True,
    limit: PositiveInt | None = None,
    json: bool = False,
) -> None:
    """Run the offline workloads W1 (all requests at once) and W2 (one stream) and print tokens per second.

    Parameters
    ----------
    workload
        JSON file with w1, w2 and w3; the standard one (seed 0) is generated if none is given.
    engine
        The engine to measure.
    repeat
        Passes over W1.
    single_stream
        Measure W2 as well.
    limit
        Only the first so many requests of W1.
    json
        Print JSON instead of a table.
    """
    path = model_on_disk(engine.model)
    console = Console(stderr=True)
    chosen = read_workload(workload) if workload is not None else _standard_workload(path, console)
    if limit is not None:
        chosen = replace(chosen, w1=chosen.w1[:limit])
    with console.status("") as status:
        result = offline_bench.measure(
            replace(engine, model=str(path)),
            chosen,
            repeat=repeat,
            single_stream=single_stream,
            progress=status.update,
        )
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
    json: bool = False,
) -> None:
    """Time what the HTTP front adds to the first token: the client's TTFT minus the engine's, on an idle server.

    Parameters
    ----------
    model
        What to serve; as for `evenflow serve`.
    requests
        Requests to send, one at a time. 500 are the fewest that carry a P99.
    prompt_tokens
        Tokens of each prompt.
    seed
        Seed of the prompts' content.
    json
        Print JSON instead of a table.
    """
    path = model_on_disk(model)
    rng, source = Random(seed), RandomTokens(load_tokenizer(path))
    prompts = [source.prompt(rng, prompt_tokens) for _ in range(requests + front_bench.WARM_UP_REQUESTS)]
    with Console(stderr=True).status("serving one request at a time"):
        cost = front_bench.measure(path, prompts)
    _show(asdict(cost), json)


@app.command
def quality(
    *,
    engine: Annotated[EngineConfig, Parameter(name="*")] = EngineConfig(),
    tokens: PositiveInt = 20_000,
    compare: bool = False,
    json: bool = False,
) -> None:
    """Measure perplexity on English text through the engine's own path: what a number format costs in quality.

    Parameters
    ----------
    engine
        The engine to measure.
    tokens
        Tokens of the text, rounded up to whole windows of 1,024; it has about 23,000.
    compare
        Measure fp32, bf16 and int8 in one run, whatever the engine's dtype and quantize are.
    json
        Print JSON instead of a table.
    """
    path = model_on_disk(engine.model)
    prompts = quality_bench.windows(load_tokenizer(path).encode(quality_bench.text()), num_tokens=tokens)
    config = replace(engine, model=str(path))
    asked = {name: quality_bench.in_format(config, name) for name in quality_bench.FORMATS} if compare else {"": config}
    measured: dict[str, quality_bench.Perplexity] = {}
    with Console(stderr=True).status("") as status:
        for name, each in asked.items():
            status.update(f"measuring {name}".strip())
            measured[name] = quality_bench.measure(each, prompts, progress=status.update)
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
    engine: Annotated[EngineConfig, Parameter(name="*")] = EngineConfig(),
    running: PositiveInt = 64,
    prefill: NonNegativeInt = 0,
    context: PositiveInt = 256,
    steps: PositiveInt = 50,
    json: bool = False,
) -> None:
    """Show where a step's time goes: schedule, inputs, each kind of kernel, head, sampling, update, delivery.

    Parameters
    ----------
    engine
        The engine to measure.
    running
        Requests that decode.
    prefill
        Prompt tokens that are computed beside them in every step.
    context
        Prompt tokens of each request that decodes.
    steps
        Steps to measure.
    json
        Print JSON instead of a table.
    """
    from evenflow.bench import profile as profile_bench  # imports torch, which the other benches need not wait for

    scene = profile_bench.Scene(running=running, prefill=prefill, context=context, steps=steps)
    config = replace(engine, model=str(model_on_disk(engine.model)))
    with Console(stderr=True).status("") as status:
        result = profile_bench.measure(config, scene, progress=status.update)
    if json:
        _print_json(asdict(result))
        return
    _show(result.settings, False)
    table = Table("part of a step", "ms", "share", box=None)
    for part, milliseconds in result.parts_ms.items():
        table.add_row(part, f"{milliseconds:.3f}", f"{milliseconds / result.step_ms:.1%}")
    table.add_row("all", f"{result.step_ms:.3f}", f"without the stopwatch {result.plain_step_ms:.3f} ms")
    Console().print(table)


def _policy(name: str) -> PolicySpec:
    return scheduler_bench.EVERYTHING if name == "everything" else policy_from_table({"preset": name})


@app.command
def policies(
    *,
    only: list[str] | None = None,
    engine: Annotated[EngineConfig, Parameter(name="*")] = EngineConfig(),
    rounds: PositiveInt = 3,
    json: bool = False,
) -> None:
    """Measure what scheduling policies promise, on a real model; every figure is a ratio within one run.

    Parameters
    ----------
    only
        Experiments to run (repeat the flag for several); all if not given.
    engine
        The engine to measure; an experiment sets seats, memory and policy itself.
    rounds
        Rounds in which every engine of an experiment plays the same load in turn.
    json
        Print JSON instead of tables.
    """
    unknown = [name for name in only or () if name not in EXPERIMENTS]
    if unknown:
        raise ConfigError(f"there is no experiment {unknown[0]!r}; use one of {', '.join(EXPERIMENTS)}")
    config = replace(engine, model=str(model_on_disk(engine.model)))
    findings: dict[str, Finding] = {}
    with Console(stderr=True).status("") as status:
        for name in only or EXPERIMENTS:
            findings[name] = EXPERIMENTS[name].measure(config, rounds=rounds, progress=status.update)
            if not json:
                _show_finding(EXPERIMENTS[name], findings[name])
    if json:
        _print_json(findings)


def _show_finding(experiment: Experiment, finding: Finding) -> None:
    print(f"{experiment.name}: {experiment.question}\n{finding.setting}")
    table = Table(*(name for name, _ in finding.rows[0]), box=None)
    for row in finding.rows:
        table.add_row(*(value for _, value in row))
    Console().print(table)
    table = Table("figure", "measured", "asked", "", box=None)
    for figure in finding.figures:
        verdict = "" if not figure.asked else "met" if figure.met else "missed"
        table.add_row(figure.name, f"{figure.value:.3f}", figure.asked, verdict)
    Console().print(table)


def _standard_workload(path: Path, console: Console) -> PeerWorkload:
    with console.status("generating the workload"):
        return generate(load_tokenizer(path))


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
