"""Offline throughput: all requests of a workload through one engine at once, and one stream alone.

    W1   every request is in flight from the start; the figure is output tokens per second, wall clock
    W2   one request; time to the first token, and milliseconds per token after it

Greedy, end-of-sequence ignored, detokenised; the prefix cache is off unless the configuration says on, because the
same prompts come again. A short warm-up comes first. The same as what the scripts for other engines do, so that the
figures compare.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from evenflow.core.request import SamplingParams
from evenflow.engine.config import EngineConfig
from evenflow.engine.llm import LLM
from evenflow.observe.summary import RunSummary
from evenflow.workload.peer_format import PeerRequest, PeerWorkload

_SINGLE_RUNS = 3


@dataclass(frozen=True, slots=True)
class OfflineRun:
    """One pass over W1."""

    wall_seconds: float
    prompt_tokens: int
    output_tokens: int
    steps: int
    preemptions: int
    output_tokens_per_second: float


@dataclass(frozen=True, slots=True)
class SingleStream:
    """W2: medians of three."""

    ttft_ms: float
    ms_per_token: float


@dataclass(frozen=True, slots=True)
class OfflineResult:
    settings: dict[str, str]
    start_seconds: float
    runs: tuple[OfflineRun, ...]
    median_output_tokens_per_second: float
    single_stream: SingleStream | None


def measure(
    config: EngineConfig,
    workload: PeerWorkload,
    *,
    repeat: int,
    single_stream: bool,
    progress: Callable[[str], None] = lambda what: None,
) -> OfflineResult:
    progress("loading the model")
    began = time.perf_counter()
    with _llm(config) as llm:
        start_seconds = time.perf_counter() - began
        progress("warming up")
        _generate(llm, [replace(request, max_tokens=16) for request in workload.w3[:16]])
        runs = []
        for index in range(repeat):
            progress(f"W1, run {index + 1} of {repeat}")
            runs.append(_run(llm, workload.w1))
        single = None
        if single_stream:
            progress("W2, one stream")
            single = _single(llm, workload.w2[0])
        median = statistics.median(run.output_tokens_per_second for run in runs)
        return OfflineResult(dict(llm.facts.settings), start_seconds, tuple(runs), median, single)


def _llm(config: EngineConfig) -> LLM:
    settings = {name: getattr(config, name) for name in config.__slots__}
    return LLM(**{**settings, "prefix_caching": config.prefix_caching is True})


def _generate(llm: LLM, requests: Sequence[PeerRequest]) -> int:
    """Returns the number of output tokens, and that every request gave all of its own."""
    sampling = [SamplingParams(max_tokens=r.max_tokens, temperature=0.0, ignore_eos=True) for r in requests]
    completions = llm.generate([r.prompt_token_ids for r in requests], sampling)
    counts = [len(completion.token_ids) for completion in completions]
    assert counts == [r.max_tokens for r in requests]
    return sum(counts)


def _run(llm: LLM, requests: Sequence[PeerRequest]) -> OfflineRun:
    summary = RunSummary()
    watching = True
    llm.subscribe(lambda events: summary.feed(events) if watching else None)
    began = time.perf_counter()
    output_tokens = _generate(llm, requests)
    wall = time.perf_counter() - began
    watching = False
    seen = summary.summary()
    return OfflineRun(
        wall_seconds=wall,
        prompt_tokens=sum(len(r.prompt_token_ids) for r in requests),
        output_tokens=output_tokens,
        steps=seen.num_steps,
        preemptions=seen.num_preemptions,
        output_tokens_per_second=output_tokens / wall,
    )


def _single(llm: LLM, request: PeerRequest) -> SingleStream:
    firsts, rates = [], []
    for _ in range(_SINGLE_RUNS):
        began = time.perf_counter()
        _generate(llm, [replace(request, max_tokens=1)])
        first = time.perf_counter() - began
        began = time.perf_counter()
        _generate(llm, [request])
        whole = time.perf_counter() - began
        firsts.append(first)
        rates.append((whole - first) / (request.max_tokens - 1))
    return SingleStream(ttft_ms=statistics.median(firsts) * 1e3, ms_per_token=statistics.median(rates) * 1e3)
