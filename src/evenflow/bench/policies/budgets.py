"""An ITL target against fixed token budgets, on the head of a real trace: who gives more for the same stutter?

Every engine plays the same requests at the same times (the published trace, shortened to fit and sped up until the
machine is busy). The best fixed budget is the one with the most output tokens per second among those whose P99 ITL is
no worse than what the ITL target reached; a budget must be found by trying, a target is what a user knows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import median

from evenflow.bench.policies.experiment import Figure, Finding, Progress
from evenflow.bench.policies.loads import milliseconds, percentile, request, spans, warm_up
from evenflow.bench.policies.play import engine_on, play
from evenflow.core.policy.presets import policy_of
from evenflow.core.policy.spec import PolicySpec
from evenflow.core.request import Request
from evenflow.engine.build import load_model
from evenflow.engine.config import EngineConfig
from evenflow.engine.core import EngineCore
from evenflow.workload.formats import azure_excerpt
from evenflow.workload.trace import TraceRequest
from evenflow.workload.transform import scale_lengths, scale_rate

REQUESTS = 48
SPEED_UP = 6.0
SHORTEN = 0.5
BUDGETS = (64, 128, 256, 512, 1024)
ITL_TARGET = 0.1
NAME = f"itl-target {ITL_TARGET * 1e3:.0f} ms"


@dataclass(frozen=True, slots=True)
class Run:
    p99_itl: float
    p95_ttft: float
    output_tokens_per_second: float


def measure(config: EngineConfig, /, *, rounds: int, progress: Progress) -> Finding:
    progress("loading the model")
    model = load_model(config)
    config = replace(config, max_num_seqs=64, max_model_len=4096, max_num_batched_tokens=max(BUDGETS))
    config = replace(config, kv_memory=str(1500 * model.bytes_per_block(config.block_size)))
    base = replace(policy_of("evenflow-balanced"), budget="fixed", reserve="prompt")
    policies: dict[str, PolicySpec] = {
        NAME: replace(base, budget="itl-target", itl_target=ITL_TARGET),
        **{f"fixed {budget}": replace(base, max_num_batched_tokens=budget) for budget in BUDGETS},
    }
    engines = {name: engine_on(model, config, spec) for name, spec in policies.items()}
    trace = scale_rate(scale_lengths(azure_excerpt().head(REQUESTS), SHORTEN), SPEED_UP)
    runs: dict[str, list[Run]] = {name: [] for name in engines}
    for number in range(rounds):
        for name, core in engines.items():
            progress(f"round {number + 1} of {rounds}: {name}")
            if number == 0:
                warm_up(core, model.vocab_size, 0)
            runs[name].append(_run(core, _load(trace, number, model.vocab_size)))
    setting = f"{dict(model.description)['model']}: {REQUESTS} requests of the Azure conversation trace, lengths x "
    setting += f"{SHORTEN:g}, rate x {SPEED_UP:g}"
    return Finding(setting, tuple(_row(name, runs[name]) for name in runs), _figures(runs))


def _load(trace: Sequence[TraceRequest], seed: int, vocab_size: int) -> list[Request]:
    rng = Random(seed)
    return [
        request(
            f"{seed}-{i}",
            min(each.num_prompt_tokens, 3000),
            each.num_output_tokens,
            rng,
            vocab_size,
            at=each.arrival_seconds,
        )
        for i, each in enumerate(trace)
    ]


def _run(core: EngineCore, load: Sequence[Request]) -> Run:
    played = play(core, load)
    found = spans(played).values()
    gaps = [gap for span in found for gap in span.itl_seconds]
    waits = [span.ttft_seconds for span in found if span.ttft_seconds is not None]
    tokens = sum(span.num_output_tokens for span in found)
    return Run(percentile(gaps, 99), percentile(waits, 95), tokens / played.seconds)


def _figures(runs: dict[str, list[Run]]) -> tuple[Figure, ...]:
    def itl(name: str) -> float:
        return median(run.p99_itl for run in runs[name])

    def speed(name: str) -> float:
        return median(run.output_tokens_per_second for run in runs[name])

    as_smooth = [name for name in runs if name != NAME and itl(name) <= itl(NAME)]
    figures = [Figure("P99 ITL / target", itl(NAME) / ITL_TARGET)]
    if as_smooth:
        best = max(as_smooth, key=speed)
        ratio = median(
            a.output_tokens_per_second / b.output_tokens_per_second for a, b in zip(runs[NAME], runs[best], strict=True)
        )
        figures.append(Figure(f"output tokens/s, itl-target / {best} (the best as smooth)", ratio, at_least=1.0))
    return tuple(figures)


def _row(name: str, runs: Sequence[Run]) -> tuple[tuple[str, str], ...]:
    return (
        ("budget", name),
        ("P99 ITL", milliseconds(median(run.p99_itl for run in runs))),
        ("P95 TTFT", milliseconds(median(run.p95_ttft for run in runs))),
        ("output tokens/s", f"{median(run.output_tokens_per_second for run in runs):.0f}"),
    )
