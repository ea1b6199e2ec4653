"""Static batches against continuous batching, on answers of mixed lengths.

A static batch runs until its longest answer is done, so its seats empty one by one and nobody takes them. Both engines
have the same seats and the same work, all there from the beginning.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from statistics import median

from evenflow.bench.policies.experiment import Figure, Finding, Progress
from evenflow.bench.policies.loads import request, warm_up
from evenflow.bench.policies.play import Played, engine_on, play
from evenflow.core.events import StepRecord
from evenflow.core.policy.presets import policy_of
from evenflow.core.request import Request
from evenflow.engine.build import load_model
from evenflow.engine.config import EngineConfig

SEATS = 16
REQUESTS = 64
PROMPT_TOKENS = (16, 128)
OUTPUT_TOKENS = (8, 32, 128, 256)
PRESETS = ("static", "evenflow-throughput")


def measure(config: EngineConfig, /, *, rounds: int, progress: Progress) -> Finding:
    progress("loading the model")
    model = load_model(config)
    config = replace(config, max_num_seqs=SEATS, max_model_len=2048, max_num_batched_tokens=2048)
    blocks = 2 * SEATS * (PROMPT_TOKENS[1] + max(OUTPUT_TOKENS) + 1200) // config.block_size
    config = replace(config, kv_memory=str(blocks * model.bytes_per_block(config.block_size)))
    engines = {name: engine_on(model, config, policy_of(name)) for name in PRESETS}
    runs: dict[str, list[Played]] = {name: [] for name in PRESETS}
    for number in range(rounds):
        for name, core in engines.items():
            progress(f"round {number + 1} of {rounds}: {name}")
            if number == 0:
                warm_up(core, model.vocab_size, 0)
            runs[name].append(play(core, _load(number, model.vocab_size)))
    setting = f"{dict(model.description)['model']}: {REQUESTS} requests, {SEATS} seats, outputs of {OUTPUT_TOKENS}"
    pairs = zip(runs["static"], runs["evenflow-throughput"], strict=True)
    ratio = median(static.seconds / continuous.seconds for static, continuous in pairs)
    figures = (Figure("output tokens/s, evenflow-throughput / static", ratio),)
    return Finding(setting, tuple(_row(name, runs[name]) for name in PRESETS), figures)


def _load(seed: int, vocab_size: int) -> list[Request]:
    rng = Random(seed)
    return [
        request(f"{seed}-{i}", rng.randrange(*PROMPT_TOKENS), rng.choice(OUTPUT_TOKENS), rng, vocab_size)
        for i in range(REQUESTS)
    ]


def _row(name: str, runs: Sequence[Played]) -> tuple[tuple[str, str], ...]:
    steps = [[event for event in run.events if isinstance(event, StepRecord)] for run in runs]
    tokens = [sum(len(step.emitted) for step in each) for each in steps]
    return (
        ("policy", name),
        ("output tokens/s", f"{median(t / run.seconds for t, run in zip(tokens, runs, strict=True)):.0f}"),
        ("steps", f"{median(len(each) for each in steps):.0f}"),
        ("requests in a step", f"{median(sum(s.num_scheduled for s in each) / len(each) for each in steps):.1f}"),
    )
