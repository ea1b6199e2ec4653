"""Sampling spelled out token by token: slow, obvious, and written without looking at the fast one.

Edits are done in fp32, so that equal logits stay equal; probabilities are in fp64.
"""

from collections.abc import Sequence

import numpy as np

from evenflow.core.request import Request

Distribution = list[float]


def edited_logits(logits: Sequence[float], request: Request, output: Sequence[int]) -> list[np.float32]:
    sampling = request.sampling
    edited = [np.float32(value) for value in logits]
    for token_id, bias in sampling.logit_bias:
        edited[token_id] += np.float32(bias)
    if len(output) < sampling.min_tokens:
        eos = () if sampling.ignore_eos else request.eos_token_ids
        for token_id in (*sampling.stop_token_ids, *eos):
            edited[token_id] = np.float32(-np.inf)
    for token_id in range(len(edited)):
        value = edited[token_id]
        if token_id in request.prompt_token_ids or token_id in output:
            repetition = np.float32(sampling.repetition_penalty)
            value = value / repetition if value > 0 else value * repetition
        count = np.float32(output.count(token_id))
        value -= np.float32(sampling.frequency_penalty) * count
        value -= np.float32(sampling.presence_penalty) * np.float32(count > 0)
        edited[token_id] = value
    return edited


def distribution(
    logits: Sequence[float], request: Request, output: Sequence[int], *, top_p: float, min_p: float
) -> Distribution:
    """Probabilities of the next token; `top_p` and `min_p` replace the request's, for a test to look beside them."""
    sampling = request.sampling
    edited = [float(value) for value in edited_logits(logits, request, output)]
    if sampling.temperature == 0:
        return [float(token_id == edited.index(max(edited))) for token_id in range(len(edited))]
    weights = [np.exp((value - max(edited)) / sampling.temperature) for value in edited]
    kept = [token_id for token_id in range(len(weights)) if weights[token_id] >= min_p]
    kept.sort(key=lambda token_id: (-edited[token_id], token_id))
    if sampling.top_k:
        kept = kept[: sampling.top_k]
    if top_p < 1:
        total = sum(weights[token_id] for token_id in kept)
        nucleus: list[int] = []
        while sum(weights[token_id] for token_id in nucleus) < top_p * total and len(nucleus) < len(kept):
            nucleus.append(kept[len(nucleus)])
        kept = nucleus
    total = sum(weights[token_id] for token_id in kept)
    return [weights[token_id] / total if token_id in kept else 0.0 for token_id in range(len(weights))]


def could_win(contender: int, weights: Sequence[float], times: Sequence[float], *, tolerance: float = 1e-5) -> bool:
    """Whether this contender arrives first, or within a rounding of the first, if each takes time / weight."""
    arrivals = [time / weight if weight > 0 else np.inf for time, weight in zip(times, weights, strict=True)]
    return weights[contender] > 0 and arrivals[contender] <= min(arrivals) * (1 + tolerance)
