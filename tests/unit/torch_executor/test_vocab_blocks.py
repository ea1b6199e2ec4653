"""Looking at a row by blocks gives what looking at all of it gives."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from evenflow.executors.torch.vocab_blocks import argmax_rows, at_least, block_maxima, heaviest, largest

VOCAB_SIZES = [1, 5, 255, 256, 257, 768, 1000, 49152]


def coarse(vocab_size: int, num_rows: int, seed: int) -> torch.Tensor:
    """Rows with many equal values."""
    return torch.from_numpy(np.random.default_rng(seed).integers(-9, 9, (num_rows, vocab_size)).astype(np.float32))


@given(st.sampled_from(VOCAB_SIZES), st.integers(1, 4), st.integers(0, 2**32))
def test_argmax_is_the_lowest_id_of_the_largest(vocab_size: int, num_rows: int, seed: int) -> None:
    rows = coarse(vocab_size, num_rows, seed)
    assert argmax_rows(rows.numpy(), block_maxima(rows)).tolist() == rows.numpy().argmax(1).tolist()


@given(st.sampled_from(VOCAB_SIZES), st.integers(0, 2**32), st.floats(-10, 10, width=32))
def test_at_least_finds_everyone_in_order(vocab_size: int, seed: int, bound: float) -> None:
    rows = coarse(vocab_size, 1, seed)
    expected = [token_id for token_id, value in enumerate(rows[0].tolist()) if value >= bound]
    assert at_least(rows[0].numpy(), block_maxima(rows)[0], bound).tolist() == expected


@given(st.sampled_from(VOCAB_SIZES), st.integers(0, 2**32), st.sampled_from([1, 2, 5, 20, 190, 300, 60_000]))
def test_largest_is_a_stable_sort_cut_short(vocab_size: int, seed: int, count: int) -> None:
    rows = coarse(vocab_size, 1, seed)
    values = rows[0].tolist()
    expected = sorted(range(vocab_size), key=lambda token_id: (-values[token_id], token_id))[:count]
    assert largest(rows[0].numpy(), block_maxima(rows)[0], count).tolist() == expected
    assert heaviest(rows[0].numpy(), block_maxima(rows)[0], count).tolist() == sorted(expected)
