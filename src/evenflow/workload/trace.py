"""A trace: when requests came and how long they were. Lengths, not text; text is made to measure (synthesize.py)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from evenflow.core.errors import ConfigError, EvenflowError


class TraceError(EvenflowError):
    """A trace or workload file cannot be read; the message names the file, the line and the column or field."""


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """`arrival_seconds` counts from the first request of the trace. Both lengths are at least 1."""

    arrival_seconds: float
    num_prompt_tokens: int
    num_output_tokens: int


@dataclass(frozen=True, slots=True)
class Trace:
    """`requests` are in order of arrival. Rows read = requests + dropped (by reason); `source` is for people."""

    source: str
    format_name: str
    requests: tuple[TraceRequest, ...]
    num_rows: int
    dropped: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        assert self.num_rows == len(self.requests) + sum(count for _, count in self.dropped)

    @property
    def span_seconds(self) -> float:
        return self.requests[-1].arrival_seconds if self.requests else 0.0

    def head(self, count: int) -> tuple[TraceRequest, ...]:
        return self.requests[:count]


def scale_lengths(requests: Sequence[TraceRequest], factor: float) -> tuple[TraceRequest, ...]:
    """Both lengths times `factor`, rounded, at least 1."""
    if not factor > 0.0:
        raise ConfigError(f"length_scale must be above 0, not {factor}")
    return tuple(
        replace(
            request,
            num_prompt_tokens=max(1, round(request.num_prompt_tokens * factor)),
            num_output_tokens=max(1, round(request.num_output_tokens * factor)),
        )
        for request in requests
    )


def scale_rate(requests: Sequence[TraceRequest], factor: float) -> tuple[TraceRequest, ...]:
    """The same requests, `factor` times as fast."""
    if not factor > 0.0:
        raise ConfigError(f"rate_scale must be above 0, not {factor}")
    return tuple(replace(request, arrival_seconds=request.arrival_seconds / factor) for request in requests)


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
        changes[cut != request] += 1
        fitted.append(cut)
    return Fitted(tuple(fitted), changes[True])
