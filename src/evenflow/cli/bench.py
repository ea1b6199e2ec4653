"""`evenflow bench`: measurements of evenflow itself. Ratios in one run mean more than any single figure."""

from dataclasses import asdict, replace
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
from evenflow.bench.policies.experiment import Experiment, Finding
from evenflow.bench.policies.table import EXPERIMENTS
from evenflow.cli.options import EngineOptions, Switch, refuse
from evenflow.cli.progress import model_on_disk, saying
from evenflow.cli.signals import ending_in_order
from evenflow.core.errors import ConfigError
from evenflow.core.policy.spec import PolicySpec
from evenflow.core.policy.table import policy_from_table
from evenflow.engine.config import EngineConfig
from evenflow.models.tokenizer import load_tokenizer
from evenflow.workload.peer_format import PeerWorkload, generate, read_workload
from evenflow.workload.synthesize import RandomTokens

app = App(name="bench", help="Measure evenflow on this machine.")
for _name, _where, _help in (
    (
        "startup",
        "bench_process:startup",
        "Time `evenflow serve` from the command to the first served token, the model being on disk.",
    ),
    (
        "memory",
        "bench_process:memory",
        "Measure what the engine process holds in memory, once loaded and with a full KV cache.",
    ),
    (
        "simulator",
        "bench_simulator:simulator",
        "Measure the simulator: steps per second, an hour of real traffic, bytes per request.",
    ),
    (
        "fidelity",
        "bench_simulator:fidelity",
        "Calibrate, run other traffic live, simulate it, and hold one against the other.",
    ),
    (
        "floor",
        "bench_floor:floor",
        "Run W1, and after each step its matrix products alone, and print how much of the steps they are.",
    ),
    (
        "recording",
        "bench_recording:recording",
        "Run W1 with and without the event log and the folds, in turns, and print what recording costs.",
    ),
    (
        "tuner",
        "bench_tuner:tuner",
        "Measure a grid of 12 cells live, let the tuner search it by itself, and compare choice and machine time.",
    ),
    (
        "peers",
        "bench_peers:peers",
        "Run the same work on evenflow and on other engines, in turns, and print figures and ratios.",
    ),
):
    app.command(f"evenflow.cli.{_where}", name=_name, help=_help)


@app.command
def scheduler(
    *,
    running: PositiveInt = 64,
    waiting: NonNegativeInt = 0,
    steps: PositiveInt = 1000,
    tenants: PositiveInt = 1,
    policy: str | None = None,
    json: Switch = False,
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
    tenants
        How many tenants the requests are of, in turn.
    policy
        A preset, or "everything" (every piece that costs something, at once); plain first come first served if none.
    json
        Print JSON instead of tables.
    """
    spec = None if policy is None else _policy(policy)
    cost = scheduler_bench.measure(running=running, waiting=waiting, steps=steps, tenants=tenants, spec=spec)
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
        Measure fp32, bf16, int8 and the int8 KV cache one after the other, whatever the formats asked for.
    json
        Print JSON instead of tables.
    """
    refuse(engine, "max_model_len", "max_num_seqs", "kv_memory", "prefix_caching")
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
        results = [{"format": name, **asdict(result)} for name, result in measured.items()]
        _print_json({"text": quality_bench.TEXT_NAME, "perplexities": results})
        return
    print(f"Text: {quality_bench.TEXT_NAME}")
    table = Table("dtype", "quantize", "kv_dtype", "tokens", "perplexity", "", "seconds", box=None)
    for name, result in measured.items():
        numbers = (result.settings[setting].split()[0] for setting in ("dtype", "quantize", "kv_dtype"))
        reference = quality_bench.FORMATS[name].reference if name else None
        ratio = "" if reference is None else f"{result.perplexity / measured[reference].perplexity:.4f} x {reference}"
        table.add_row(*numbers, str(result.tokens), f"{result.perplexity:.4f}", ratio, f"{result.seconds:.1f}")
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

    refuse(engine, "max_num_seqs", "prefix_caching")
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


def _policy(name: str) -> PolicySpec:
    return scheduler_bench.EVERYTHING if name == "everything" else policy_from_table({"preset": name})


@app.command
def policies(
    *,
    only: list[str] | None = None,
    engine: EngineOptions = EngineConfig(),
    rounds: PositiveInt = 3,
    json: Switch = False,
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
    with saying(console, "generating the workload"):
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
