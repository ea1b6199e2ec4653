"""Exponentials and masses of single roundings, against double precision and against themselves in another order."""

import numpy as np

from evenflow.executors.torch.draw import natural_log
from evenflow.executors.torch.vocab_blocks import BLOCK
from evenflow.executors.torch.weights import LARGEST_VOCABULARY, block_masses, exponentials, masses


def test_exponentials_are_within_two_units_in_the_last_place() -> None:
    x = np.linspace(-87.0, 0.0, 400_001).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    assert (np.abs(exponentials(x) - exact) <= 2 * 2.0**-24 * 2 * exact).all()
    assert (np.diff(exponentials(x)) >= 0).all()


def test_the_ends_of_the_exponential_are_exact() -> None:
    x = np.array([0.0, -0.0, -89.0, -3e38, -np.inf, np.nan], dtype=np.float32)
    assert exponentials(x).tolist() == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]


def test_sums_of_masses_do_not_depend_on_their_order() -> None:
    rng = np.random.default_rng(0)
    weights = rng.random(200_000).astype(np.float32) ** 9
    expected = sum(masses(weights).tolist())
    assert sum(masses(rng.permutation(weights)).tolist()) == expected
    assert block_masses(weights[None]).sum() == expected
    assert block_masses(weights[None]).shape == (1, -(-200_000 // BLOCK))
    assert abs(expected - weights.sum(dtype=np.float64)) < 200_000 * 2.0**-35


def test_even_the_heaviest_row_of_the_largest_vocabulary_is_summed_exactly() -> None:
    weights = np.full((1, LARGEST_VOCABULARY), 1.0 - 2.0**-24, dtype=np.float32)
    assert block_masses(weights).sum() == LARGEST_VOCABULARY * (1.0 - 2.0**-24)


def test_the_logarithm_is_that_of_the_library_but_for_a_rounding() -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate((rng.random(100_000), 1.0 - rng.random(1000) * 1e-9, [2.0**-54, 0.5, 1.0, 12_345.678]))
    exact = np.log(x)
    assert (np.abs(natural_log(x) - exact) <= 4e-16 * np.abs(exact) + 1e-300).all()
