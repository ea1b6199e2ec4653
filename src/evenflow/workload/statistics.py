"""What a trace is like, in the numbers that tell traces apart.

`gap_cv` is the coefficient of variation of the gaps between arrivals (1 for Poisson); `dispersion` the variance over
the mean of the arrivals per second (1 for Poisson, whatever the rate): the first sees neighbours, the second seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evenflow.workload.trace import Trace, TraceRequest


@dataclass(frozen=True, slots=True)
class LengthStatistics:
    mean: float
    p50: float
    p95: float
    p99: float
    max: int


@dataclass(frozen=True, slots=True)
class TraceStatistics:
    """What needs times is None where there are none, or too few. `reusable_share` is the part of all prompt tokens that
    an unlimited prefix cache would have; None without block ids."""

    num_requests: int
    span_seconds: float | None
    rate: float | None
    gap_cv: float | None
    dispersion: float | None
    prompt: LengthStatistics
    output: LengthStatistics
    reusable_share: float | None


def statistics_of(trace: Trace) -> TraceStatistics:
    requests = trace.requests
    timed = trace.time_unit is not None and len(requests) > 2 and trace.span_seconds > 0.0
    arrivals = np.array([request.arrival_seconds for request in requests]) - requests[0].arrival_seconds
    gaps = np.diff(arrivals)
    per_second = np.bincount(np.floor(arrivals).astype(np.int64)) if timed else np.zeros(0)
    return TraceStatistics(
        num_requests=len(requests),
        span_seconds=float(arrivals[-1]) if timed else None,
        rate=float(len(requests) / arrivals[-1]) if timed else None,
        gap_cv=float(gaps.std() / gaps.mean()) if timed else None,
        dispersion=float(per_second.var() / per_second.mean()) if timed else None,
        prompt=_lengths([request.num_prompt_tokens for request in requests]),
        output=_lengths([request.num_output_tokens for request in requests]),
        reusable_share=_reusable_share(requests),
    )


def _lengths(values: Sequence[int]) -> LengthStatistics:
    p50, p95, p99 = np.percentile(values, (50, 95, 99)).tolist()
    return LengthStatistics(float(np.mean(values)), p50, p95, p99, max(values))


def _reusable_share(requests: Sequence[TraceRequest]) -> float | None:
    """A block is reusable if it and all before it have been there: a cache knows prefixes, not pieces."""
    seen: set[int] = set()
    reusable = 0
    for request in requests:
        if request.prefix is None:
            return None
        size, ids = request.prefix.block_tokens, request.prefix.ids
        known = next((index for index, block in enumerate(ids) if block not in seen), len(ids))
        reusable += min(known * size, request.num_prompt_tokens)
        seen.update(ids)
    return reusable / sum(request.num_prompt_tokens for request in requests)


def describe(statistics: TraceStatistics) -> str:
    """Two lines for people."""
    when = f"{statistics.num_requests} requests"
    if statistics.rate is not None:
        when += (
            f" over {statistics.span_seconds:.1f} s: {statistics.rate:.3g}/s, CV of gaps {statistics.gap_cv:.2f}, "
            f"variance over mean of arrivals per second {statistics.dispersion:.2f}"
        )
    if statistics.reusable_share is not None:
        when += f"; {statistics.reusable_share:.1%} of prompt tokens repeat a prefix"
    return f"{when}\n{_describe_lengths('prompt', statistics.prompt)}; {_describe_lengths('output', statistics.output)}"


def _describe_lengths(name: str, lengths: LengthStatistics) -> str:
    shown = "/".join(f"{value:.0f}" for value in (lengths.p50, lengths.p95, lengths.p99))
    return f"{name} tokens mean {lengths.mean:.0f}, P50/P95/P99 {shown}, max {lengths.max}"
