"""What may be done to a trace before it is sent: a window of it, another rate, other lengths, a shorter context.

Every function gives new requests in order of arrival; none looks at a clock. Randomness is an argument.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from statistics import median

from evenflow.core.errors import ConfigError
from evenflow.workload.rows import MAX_TOKENS
from evenflow.workload.trace import PrefixBlocks, TraceRequest

# A trace is quantised if requests share few instants. Even very bursty ones (CV 13) have 0.97 distinct times a request.
_DISTINCT_PER_REQUEST = 0.5
_MIN_REQUESTS_TO_TELL = 20
_MOST_FACTOR = 1e6


def window(requests: Sequence[TraceRequest], start: float, end: float | None) -> tuple[TraceRequest, ...]:
    """Those that arrive in [start, end), with times from `start` on."""
    if start < 0.0 or (end is not None and not end > start):
        raise ConfigError(f"a window must begin at 0 or later and end after it begins, not {start}..{end}")
    last = float("inf") if end is None else end
    inside = [request for request in requests if start <= request.arrival_seconds < last]
    if not inside:
        raise ConfigError(f"no request arrives between {start} s and {'the end' if end is None else f'{end} s'}")
    return tuple(replace(request, arrival_seconds=request.arrival_seconds - start) for request in inside)


def scale_rate(requests: Sequence[TraceRequest], factor: float) -> tuple[TraceRequest, ...]:
    """The same requests, `factor` times as fast."""
    _check_factor("rate_scale", factor)
    return tuple(replace(request, arrival_seconds=request.arrival_seconds / factor) for request in requests)


def scale_lengths(requests: Sequence[TraceRequest], factor: float) -> tuple[TraceRequest, ...]:
    """Both lengths times `factor`, rounded, at least 1. Blocks of a prefix shrink with the prompt, so that the share of
    it that is common stays."""
    _check_factor("length_scale", factor)
    longest = max((max(each.num_prompt_tokens, each.num_output_tokens) for each in requests), default=0)
    if longest * factor > MAX_TOKENS:
        raise ConfigError(
            f"length_scale {factor:g} makes {longest} tokens more than any model takes ({MAX_TOKENS}); take at most "
            f"{MAX_TOKENS / longest:g}"
        )
    return tuple(_scaled(request, factor) for request in requests)


def _check_factor(name: str, factor: float) -> None:
    if not 0.0 < factor <= _MOST_FACTOR:
        raise ConfigError(f"{name} must be above 0 and at most {_MOST_FACTOR:g}, not {factor:g}")


def _scaled(request: TraceRequest, factor: float) -> TraceRequest:
    output = max(1, round(request.num_output_tokens * factor))
    prompt = max(1, round(request.num_prompt_tokens * factor))
    if request.prefix is None:
        # Text does not scale; a prompt of another length is made to measure.
        text = request.text if prompt == request.num_prompt_tokens else None
        return replace(request, num_prompt_tokens=prompt, num_output_tokens=output, text=text)
    block_tokens = max(1, round(request.prefix.block_tokens * factor))
    prompt = min(prompt, block_tokens * len(request.prefix.ids))
    prefix = _prefix_of(prompt, PrefixBlocks(block_tokens, request.prefix.ids))
    return replace(request, num_prompt_tokens=prompt, num_output_tokens=output, prefix=prefix)


def _prefix_of(num_tokens: int, prefix: PrefixBlocks) -> PrefixBlocks:
    return replace(prefix, ids=prefix.ids[: -(-num_tokens // prefix.block_tokens)])


@dataclass(frozen=True, slots=True)
class Fitted:
    """`num_cut` requests lost tokens to the context length; a report must say so."""

    requests: tuple[TraceRequest, ...]
    num_cut: int


def fit_to_context(requests: Sequence[TraceRequest], max_model_len: int) -> Fitted:
    """Prompt plus output of each within the context: the output cut to half of it at most, the prompt to the rest."""
    if max_model_len < 2:
        raise ConfigError(f"max_model_len must be at least 2 (one prompt token, one output), not {max_model_len}")
    fitted = []
    changes: Counter[bool] = Counter()
    for request in requests:
        output = request.num_output_tokens
        if request.num_prompt_tokens + output > max_model_len:
            output = min(output, max_model_len // 2)
        prompt = min(request.num_prompt_tokens, max_model_len - output)
        cut = replace(request, num_prompt_tokens=prompt, num_output_tokens=output)
        if prompt < request.num_prompt_tokens:
            prefix = _prefix_of(prompt, request.prefix) if request.prefix is not None else None
            cut = replace(cut, prefix=prefix, text=None)
        changes[cut != request] += 1
        fitted.append(cut)
    return Fitted(tuple(fitted), changes[True])


@dataclass(frozen=True, slots=True)
class Ticks:
    """A clock so coarse that requests share its instants. `seconds` is the median time between two that are used."""

    num_distinct: int
    seconds: float


def ticks_of(requests: Sequence[TraceRequest]) -> Ticks | None:
    """None if the times are as fine as the requests are many."""
    distinct = sorted({request.arrival_seconds for request in requests})
    if len(requests) < _MIN_REQUESTS_TO_TELL or len(distinct) < 2:
        return None
    if len(distinct) > _DISTINCT_PER_REQUEST * len(requests):
        return None
    gaps = [b - a for a, b in pairwise(distinct)]
    return Ticks(len(distinct), median(gaps))


def spread_ticks(requests: Sequence[TraceRequest], ticks: Ticks, rng: Random) -> tuple[TraceRequest, ...]:
    """Each request at a random instant between its tick and the next; their order stays."""
    spread: list[TraceRequest] = []
    group: list[TraceRequest] = []
    following = [*(request.arrival_seconds for request in requests[1:]), float("inf")]
    for request, next_arrival in zip(requests, following, strict=True):
        group.append(request)
        if next_arrival > request.arrival_seconds:
            width = min(ticks.seconds, next_arrival - request.arrival_seconds)
            offsets = sorted(rng.random() * width for _ in group)
            spread += [
                replace(one, arrival_seconds=one.arrival_seconds + offset)
                for one, offset in zip(group, offsets, strict=True)
            ]
            group = []
    return tuple(spread)
