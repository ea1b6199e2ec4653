"""The work that every contender is given.

w1        all requests at once                                  output tokens per second
w2        one request of 128 tokens in and 128 out              time to the first token, ms per token after it
w3        requests that come by themselves (Poisson), by HTTP   tails of TTFT and of the gaps between tokens
long      8 requests of 4,000 prompt tokens at once             tokens per second, prompt and output
context   8 requests of 250 to 4,000 tokens (evenflow only)     time of a decode step at each context
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from random import Random

from evenflow.core.errors import ConfigError
from evenflow.workload.peer_format import PeerRequest, PeerWorkload

_LONG_REQUESTS = 8
_LONG_PROMPT_TOKENS = 4000
_LONG_OUTPUT_TOKENS = 64
_CONTEXTS = (250, 500, 1000, 2000, 4000)
_CONTEXT_OUTPUT_TOKENS = 33
_WARM_UP_REQUESTS = 16
_WARM_UP_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Work:
    """`contexts` has requests by the length of their prompts; `unit_gaps` are those of w3."""

    warm_up: tuple[PeerRequest, ...]
    w1: tuple[PeerRequest, ...]
    w2: tuple[PeerRequest, ...]
    w3: tuple[PeerRequest, ...]
    unit_gaps: tuple[float, ...]
    long: tuple[PeerRequest, ...]
    contexts: dict[int, tuple[PeerRequest, ...]]


def whole(workload: PeerWorkload) -> Work:
    tokens = _tokens(workload)
    return Work(
        warm_up=_shortened(workload.w3[:_WARM_UP_REQUESTS], _WARM_UP_TOKENS),
        w1=workload.w1,
        w2=_shuffled(workload.w2[0], 3),
        w3=workload.w3,
        unit_gaps=workload.w3_unit_gaps,
        long=_cut(tokens, _LONG_REQUESTS, _LONG_PROMPT_TOKENS, _LONG_OUTPUT_TOKENS),
        contexts={length: _cut(tokens, _LONG_REQUESTS, length, _CONTEXT_OUTPUT_TOKENS) for length in _CONTEXTS},
    )


def quick(workload: PeerWorkload) -> Work:
    """A little of everything, to see that everything runs. Its figures mean nothing."""
    tokens = _tokens(workload)
    return Work(
        warm_up=_shortened(workload.w3[:4], 4),
        w1=_shortened(workload.w1[:8], 16),
        w2=(replace(workload.w2[0], max_tokens=min(16, workload.w2[0].max_tokens)),),
        w3=_shortened(workload.w3[:8], 16),
        unit_gaps=workload.w3_unit_gaps[:8],
        long=_cut(tokens, 2, min(1000, len(tokens) // 2), 8),
        contexts={length: _cut(tokens, 2, length, 9) for length in (100, 200, 400) if 2 * length <= len(tokens)},
    )


def _tokens(workload: PeerWorkload) -> list[int]:
    return list(chain.from_iterable(request.prompt_token_ids for request in (*workload.w1, *workload.w3)))


def _shortened(requests: Sequence[PeerRequest], most: int) -> tuple[PeerRequest, ...]:
    return tuple(replace(request, max_tokens=min(most, request.max_tokens)) for request in requests)


def _shuffled(request: PeerRequest, times: int) -> tuple[PeerRequest, ...]:
    """The same tokens in another order, so that no cache of prompts can help."""
    rng = Random(0)
    prompts = [request.prompt_token_ids]
    prompts += [tuple(rng.sample(request.prompt_token_ids, len(request.prompt_token_ids))) for _ in range(times - 1)]
    return tuple(replace(request, prompt_token_ids=prompt) for prompt in prompts)


def _cut(tokens: Sequence[int], count: int, length: int, max_tokens: int) -> tuple[PeerRequest, ...]:
    """Long prompts out of the short ones, no two of which begin alike."""
    if count * length > len(tokens):
        raise ConfigError(
            f"the workload has {len(tokens)} prompt tokens, and {count} prompts of {length} need {count * length}; "
            f"use a larger one"
        )
    pieces = (tuple(tokens[index * length : (index + 1) * length]) for index in range(count))
    return tuple(PeerRequest(index, "", piece, max_tokens) for index, piece in enumerate(pieces))
