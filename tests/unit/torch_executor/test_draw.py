"""The hash behind the randomness, and the inverse of a cumulative distribution."""

import numpy as np
import pytest
import torch

from evenflow.executors.torch.draw import draw_one, draw_rows, uniforms

# The 99.9 % point of chi-square with 99 degrees of freedom.
CHI_SQUARE_99 = 148.2


def chi_square(numbers: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    counts = np.bincount((numbers * 100).astype(np.int64), minlength=100)
    assert len(counts) == 100
    expected = len(numbers) / 100
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize(
    ("seeds", "places"),
    [
        (np.zeros(50_000), np.arange(50_000)),
        (np.arange(50_000), np.zeros(50_000)),
        (np.arange(50_000), np.arange(50_000)),
        (np.arange(50_000), 50_000 - np.arange(50_000)),
        (np.arange(50_000) * 2.0**40, np.ones(50_000)),
    ],
    ids=["places", "seeds", "both up", "one up, one down", "high bits"],
)
def test_neighbouring_seeds_and_places_are_uniform_and_unlike(
    seeds: np.ndarray[tuple[int], np.dtype[np.float64]], places: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> None:
    numbers = uniforms(seeds.astype(np.uint64), places.astype(np.int64))
    assert 0.0 <= numbers.min() <= numbers.max() < 1.0
    assert chi_square(numbers) < CHI_SQUARE_99
    assert abs(np.corrcoef(numbers[1:], numbers[:-1])[0, 1]) < 0.015  # 3.3 standard errors


def test_the_numbers_of_a_seed_never_change() -> None:
    """Published texts depend on them: a change here changes what every recorded seed says."""
    seeds = np.array([0, 0, 1, 2**64 - 1], dtype=np.uint64)
    numbers = uniforms(seeds, np.array([0, 1, 0, 4095]))
    assert numbers.tolist() == FIRST_NUMBERS


FIRST_NUMBERS = [0.6524484863740322, 0.7012121095215252, 0.36818951565166946, 0.25890696956169235]

GRID = [0.0, 0.1, 0.24, 0.26, 0.49, 0.51, 0.74, 0.76, 1 - 2.0**-53]


@pytest.mark.parametrize("offset", [0, 255, 256, 700])
def test_a_token_is_found_where_the_sum_passes_the_number(offset: int) -> None:
    weights = torch.zeros(len(GRID), 1000)
    weights[:, [offset, offset + 1, offset + 2, 999]] = torch.tensor([1.0, 1.0, 0.0, 2.0])
    expected = [offset] * 3 + [offset + 1] * 2 + [999] * 4
    assert draw_rows(weights, np.arange(len(GRID)), np.array(GRID)).tolist() == expected
    ids = np.flatnonzero(weights[0].numpy())
    assert [draw_one(ids, weights[0].numpy()[ids], u) for u in GRID] == expected


def test_a_weight_of_nothing_is_never_drawn() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand((2000, 1000), generator=generator) ** 8
    weights[torch.rand((2000, 1000), generator=generator) < 0.9] = 0.0
    weights[:, 5] = 1e-30
    for u in (0.0, 1 - 2.0**-53, 1e-9, 1 - 1e-9):
        tokens = draw_rows(weights, np.arange(2000), np.full(2000, u))
        assert bool((weights[torch.arange(2000), torch.from_numpy(tokens)] > 0).all())
