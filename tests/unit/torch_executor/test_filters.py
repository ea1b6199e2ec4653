"""Filters against a full sort. Weights are multiples of 2^-20, so that sums are exact and an edge is an edge."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from evenflow.executors.torch.filters import survivors
from evenflow.executors.torch.vocab_blocks import block_maxima


def by_full_sort(weights: list[float], *, top_k: int, top_p: float, min_p: float) -> list[int]:
    kept = [token_id for token_id, weight in enumerate(weights) if weight >= np.float32(min_p)]
    kept.sort(key=lambda token_id: (-weights[token_id], token_id))
    if top_k:
        kept = kept[:top_k]
    if top_p < 1.0:
        mass = top_p * sum(weights[token_id] for token_id in kept)
        size, held = 0, 0.0
        while held < mass:
            held += weights[kept[size]]
            size += 1
        kept = kept[:size]
    return sorted(kept)


@given(
    vocab_size=st.sampled_from([1, 3, 256, 700, 4096, 5000]),
    seed=st.integers(0, 2**32),
    sharpness=st.sampled_from([0.0, 0.01, 1.0, 8.0, 40.0]),
    top_k=st.sampled_from([0, 0, 1, 5, 50, 2000, 10**6]),
    top_p=st.sampled_from([1.0, 0.999, 0.9, 0.5, 1e-9]),
    min_p=st.sampled_from([0.0, 0.0, 1e-4, 0.3, 1.0]),
)
def test_survivors_are_those_of_a_full_sort(
    vocab_size: int, seed: int, sharpness: float, top_k: int, top_p: float, min_p: float
) -> None:
    smooth = np.random.default_rng(seed).random(vocab_size) ** sharpness
    weights = (np.ceil(smooth * 2**20) / 2**20).astype(np.float32)
    weights[seed % vocab_size] = 1.0
    maxima = block_maxima(torch.from_numpy(weights[None]))[0]
    expected = by_full_sort(weights.tolist(), top_k=top_k, top_p=top_p, min_p=min_p)
    assert survivors(weights, maxima, sum(weights.tolist()), top_k=top_k, top_p=top_p, min_p=min_p).tolist() == expected
