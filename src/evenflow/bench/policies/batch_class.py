"""Batch work in the slack of interactive work: how much more does the machine give, and what does it cost the others?

    alone       interactive requests at 40 % of what the machine can do
    with batch  the same requests at the same times, and a queue of batch requests that never runs dry

Two things are measured first: capacity, with interactive requests all at once, and the P99 ITL that interactive
requests have when they are alone. Then, by a live change, as an operator would who wants batch work to disturb nobody:
the ITL target becomes half of that, so that a step which batch work fills is shorter than those that interactive work
makes by itself, and batch work gets a quarter of the seats at most. Batch requests have the worst rank, so they are the
first to give way.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import median

from evenflow.bench.policies.experiment import Figure, Finding, Progress
from evenflow.bench.policies.loads import milliseconds, percentile, request, spans, warm_up
from evenflow.bench.policies.play import engine_on, play
from evenflow.core.policy.presets import policy_of
from evenflow.core.request import Request
from evenflow.engine.build import load_model
from evenflow.engine.config import EngineConfig
from evenflow.engine.core import EngineCore
from evenflow.engine.messages import AskPolicy

SEATS = 32
LOAD = 0.4
SECONDS = 20.0
TOKENS = (128, 64)
BATCH_TOKENS = (128, 96)
BATCH_REQUESTS = 160
TARGET_SHARE = 0.5
BATCH_SEATS = 0.25
PRESET = "evenflow-balanced"


@dataclass(frozen=True, slots=True)
class Run:
    """`tokens_per_second` counts the tokens fed in the first SECONDS, of both classes."""

    p99_ttft: float
    p99_itl: float
    tokens_per_second: float


def measure(config: EngineConfig, /, *, rounds: int, progress: Progress) -> Finding:
    progress("loading the model")
    model = load_model(config)
    config = replace(config, max_num_seqs=SEATS, max_model_len=2048, max_num_batched_tokens=512)
    blocks = 2 * SEATS * 2 * sum(BATCH_TOKENS) // config.block_size
    config = replace(config, kv_memory=str(blocks * model.bytes_per_block(config.block_size)))
    core = engine_on(model, config, policy_of(PRESET))
    progress("measuring capacity")
    warm_up(core, model.vocab_size, 0)
    rate = LOAD * _capacity(core, model.vocab_size)
    progress("measuring interactive work alone")
    target = TARGET_SHARE * _run(core, _interactive("before", 0, rate, model.vocab_size)).p99_itl
    _make_room(core, target)
    runs: dict[str, list[Run]] = {"alone": [], "with batch": []}
    for number in range(rounds):
        for name in runs:
            progress(f"round {number + 1} of {rounds}: interactive {name}")
            batch = _batch(f"{number}-{name}", model.vocab_size) if name == "with batch" else []
            load = _interactive(f"{number}-{name}", number, rate, model.vocab_size)
            runs[name].append(_run(core, [*load, *batch]))
    setting = f"{dict(model.description)['model']}: {rate:.2f} interactive requests/s of {TOKENS} tokens for "
    setting += f"{SECONDS:.0f} s, {PRESET} with an ITL target of {milliseconds(target)}"
    return Finding(setting, tuple(_row(name, runs[name]) for name in runs), _figures(runs))


def _capacity(core: EngineCore, vocab_size: int) -> float:
    """Interactive requests per second, with every seat taken."""
    rng = Random(7)
    load = [request(f"capacity-{i}", *TOKENS, rng, vocab_size, service_class="interactive") for i in range(2 * SEATS)]
    return len(load) / play(core, load).seconds


def _make_room(core: EngineCore, itl_target: float) -> None:
    """Between two steps, as `evenflow admin set` does."""
    batch = {"rank": 2, "max_seats": BATCH_SEATS}
    change = {"itl_target": itl_target, "classes": {"interactive": {"rank": 0}, "default": {"rank": 1}, "batch": batch}}
    core.accept(AskPolicy(0, json.dumps(change).encode()))
    (answer,) = core.news().answers
    assert not answer.problems, answer.problems


def _interactive(name: str, seed: int, rate: float, vocab_size: int) -> list[Request]:
    rng = Random(seed)
    load: list[Request] = []
    at = rng.expovariate(rate)
    while at < SECONDS:
        load.append(request(f"{name}-i{len(load)}", *TOKENS, rng, vocab_size, at=at, service_class="interactive"))
        at += rng.expovariate(rate)
    return load


def _batch(name: str, vocab_size: int) -> list[Request]:
    rng = Random(11)
    return [
        request(f"{name}-b{i}", *BATCH_TOKENS, rng, vocab_size, service_class="batch") for i in range(BATCH_REQUESTS)
    ]


def _run(core: EngineCore, load: Sequence[Request]) -> Run:
    played = play(core, load)
    found = [span for span in spans(played).values() if span.service_class == "interactive"]
    waits = [span.ttft_seconds for span in found if span.ttft_seconds is not None]
    gaps = [gap for span in found for gap in span.itl_seconds]
    return Run(percentile(waits, 99), percentile(gaps, 99), played.tokens_until(SECONDS) / SECONDS)


def _figures(runs: dict[str, list[Run]]) -> tuple[Figure, ...]:
    def ratio(of: Callable[[Run], float]) -> float:
        pairs = zip(runs["with batch"], runs["alone"], strict=True)
        return median(of(both) / of(alone) for both, alone in pairs)

    return (
        Figure("tokens/s, with batch / alone", ratio(lambda run: run.tokens_per_second), at_least=1.5),
        Figure("interactive P99 TTFT, with batch / alone", ratio(lambda run: run.p99_ttft), at_most=1.1),
        Figure("interactive P99 ITL, with batch / alone", ratio(lambda run: run.p99_itl), at_most=1.1),
    )


def _row(name: str, runs: Sequence[Run]) -> tuple[tuple[str, str], ...]:
    return (
        ("interactive", name),
        ("tokens/s", f"{median(run.tokens_per_second for run in runs):.0f}"),
        ("P99 TTFT", milliseconds(median(run.p99_ttft for run in runs))),
        ("P99 ITL", milliseconds(median(run.p99_itl for run in runs))),
    )
