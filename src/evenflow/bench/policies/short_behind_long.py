"""Twenty short prompts come right behind a long one: who gives them their first token soon?

Under `vllm` the long prompt takes every step's budget until it is done, and the short ones wait for all of it. Under
`evenflow-balanced` long prompts wait in a lane of their own and share the step.
"""

from collections.abc import Sequence
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

SHORT_REQUESTS = 20
SHORT_TOKENS = (32, 16)
LONG_TOKENS = (6000, 16)
PRESETS = ("evenflow-balanced", "evenflow-interactive", "vllm")


@dataclass(frozen=True, slots=True)
class Run:
    """Seconds. Of twenty, the P99 is nearly the slowest."""

    short_p99_ttft: float
    short_p50_ttft: float
    long_ttft: float


def measure(config: EngineConfig, /, *, rounds: int, progress: Progress) -> Finding:
    progress("loading the model")
    model = load_model(config)
    most = sum(LONG_TOKENS) + config.block_size
    config = replace(config, max_num_seqs=64, max_model_len=most, max_num_batched_tokens=512)
    blocks = 6 * -(-most // config.block_size)
    config = replace(config, kv_memory=str(blocks * model.bytes_per_block(config.block_size)))
    engines = {name: engine_on(model, config, policy_of(name)) for name in PRESETS}
    runs: dict[str, list[Run]] = {name: [] for name in PRESETS}
    for number in range(rounds):
        for name, core in engines.items():
            progress(f"round {number + 1} of {rounds}: {name}")
            if number == 0:
                warm_up(core, model.vocab_size, 0)
            runs[name].append(_run(core, _load(number, model.vocab_size)))
    setting = f"{dict(model.description)['model']}: {SHORT_REQUESTS} prompts of {SHORT_TOKENS[0]} tokens behind "
    setting += f"one of {LONG_TOKENS[0]}"
    slow, fast = (median(run.short_p99_ttft for run in runs[name]) for name in ("vllm", "evenflow-balanced"))
    figures = (Figure("P99 TTFT of the short prompts, vllm / evenflow-balanced", slow / fast, at_least=5.0),)
    return Finding(setting, tuple(_row(name, runs[name]) for name in PRESETS), figures)


def _load(seed: int, vocab_size: int) -> list[Request]:
    rng = Random(seed)
    long = request(f"{seed}-long", *LONG_TOKENS, rng, vocab_size)
    return [
        long,
        *(request(f"{seed}-{i}", *SHORT_TOKENS, rng, vocab_size, at=0.02 + 0.01 * i) for i in range(SHORT_REQUESTS)),
    ]


def _run(core: EngineCore, load: Sequence[Request]) -> Run:
    found = spans(play(core, load))
    long = found.pop(str(load[0].id))
    waits = [span.ttft_seconds for span in found.values() if span.ttft_seconds is not None]
    assert len(waits) == SHORT_REQUESTS
    assert long.ttft_seconds is not None
    return Run(percentile(waits, 99), median(waits), long.ttft_seconds)


def _row(name: str, runs: Sequence[Run]) -> tuple[tuple[str, str], ...]:
    return (
        ("policy", name),
        ("P99 TTFT, short", milliseconds(median(run.short_p99_ttft for run in runs))),
        ("P50 TTFT, short", milliseconds(median(run.short_p50_ttft for run in runs))),
        ("TTFT, long", milliseconds(median(run.long_ttft for run in runs))),
    )
