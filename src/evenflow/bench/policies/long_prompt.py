"""One long prompt comes into sixteen running streams: how much do they stutter, and how long does it take?

    streams   ----------------------------------------------------->   gaps between tokens, from its arrival ...
    long                      arrives |====== prefill ======| first token    ... to its first token

Every engine plays the same load. `sarathi` (fixed chunks of 512) is what the long prompt's own time is compared with,
`orca` (whole prompts) and `sglang` (prefill first) are what the stutter is compared with.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import median

from evenflow.bench.policies.experiment import Figure, Finding, Progress
from evenflow.bench.policies.loads import gaps_between, milliseconds, percentile, request, spans, warm_up
from evenflow.bench.policies.play import engine_on, play
from evenflow.core.policy.presets import policy_of
from evenflow.core.request import Request
from evenflow.engine.build import load_model
from evenflow.engine.config import EngineConfig
from evenflow.engine.core import EngineCore

STREAMS = 16
STREAM_TOKENS = (64, 400)
LONG_TOKENS = (4000, 8)
ARRIVES_AT = 2.0
PRESETS = ("evenflow-balanced", "sarathi", "orca", "sglang")
ITL_TARGET = policy_of("evenflow-balanced").itl_target


@dataclass(frozen=True, slots=True)
class Run:
    """Seconds. `p99_gap` is of the streams while the long prompt is in progress."""

    p99_gap: float
    largest_gap: float
    long_ttft: float


def measure(config: EngineConfig, /, *, rounds: int, progress: Progress) -> Finding:
    progress("loading the model")
    model = load_model(config)
    most = sum(LONG_TOKENS) + config.block_size
    config = replace(config, max_num_seqs=STREAMS + 1, max_model_len=most, max_num_batched_tokens=most)
    blocks = (STREAMS + 2) * -(-most // config.block_size)
    config = replace(config, kv_memory=str(blocks * model.bytes_per_block(config.block_size)))
    engines = {name: engine_on(model, config, policy_of(name)) for name in PRESETS}
    runs: dict[str, list[Run]] = {name: [] for name in PRESETS}
    for number in range(rounds):
        for name, core in engines.items():
            progress(f"round {number + 1} of {rounds}: {name}")
            if number == 0:
                warm_up(core, model.vocab_size, 0)
            runs[name].append(_run(core, _load(number, model.vocab_size)))
    setting = f"{dict(model.description)['model']}: {LONG_TOKENS[0]} tokens into {STREAMS} streams; "
    setting += f"ITL target {milliseconds(ITL_TARGET)}"
    return Finding(setting, tuple(_row(name, runs[name]) for name in PRESETS), _figures(runs))


def _load(seed: int, vocab_size: int) -> list[Request]:
    rng = Random(seed)
    load = [request(f"{seed}-{i}", *STREAM_TOKENS, rng, vocab_size) for i in range(STREAMS)]
    return [*load, request(f"{seed}-long", *LONG_TOKENS, rng, vocab_size, at=ARRIVES_AT)]


def _run(core: EngineCore, load: Sequence[Request]) -> Run:
    found = spans(play(core, load))
    long = found[str(load[-1].id)]
    assert long.first_token_time is not None
    assert long.ttft_seconds is not None
    streams = [span for name, span in found.items() if name != long.request_id]
    gaps = gaps_between(streams, long.arrival_time, long.first_token_time)
    return Run(percentile(gaps, 99), max(gaps), long.ttft_seconds)


def _figures(runs: Mapping[str, Sequence[Run]]) -> tuple[Figure, ...]:
    def gap(name: str) -> float:
        return median(run.p99_gap for run in runs[name])

    def took(name: str) -> float:
        return median(run.long_ttft for run in runs[name])

    ours = "evenflow-balanced"
    return (
        Figure("P99 ITL of the streams / ITL target, evenflow-balanced", gap(ours) / ITL_TARGET, at_most=1.25),
        Figure("P99 ITL of the streams, sglang / evenflow-balanced", gap("sglang") / gap(ours)),
        Figure("P99 ITL of the streams, orca / evenflow-balanced", gap("orca") / gap(ours)),
        Figure("TTFT of the long prompt, evenflow-balanced / sarathi", took(ours) / took("sarathi"), at_most=2.0),
    )


def _row(name: str, runs: Sequence[Run]) -> tuple[tuple[str, str], ...]:
    return (
        ("policy", name),
        ("P99 ITL", milliseconds(median(run.p99_gap for run in runs))),
        ("largest gap", milliseconds(median(run.largest_gap for run in runs))),
        ("TTFT of the long prompt", milliseconds(median(run.long_ttft for run in runs))),
    )
