"""The hash behind the randomness, and the race that it times."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from evenflow.executors.torch.draw import Seeds, Times, block_times, draw_one, draw_rows, token_times
from evenflow.executors.torch.vocab_blocks import BLOCK, Ids

# The 99.9 % point of chi-square with 99 degrees of freedom.
CHI_SQUARE_99 = 148.2
N = 50_000


def chi_square(numbers: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    counts = np.bincount((numbers * 100).astype(np.int64), minlength=100)
    assert len(counts) == 100
    expected = len(numbers) / 100
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("times_of", [block_times, token_times])
@pytest.mark.parametrize(
    ("seeds", "places", "numbers"),
    [
        (np.zeros(N), np.arange(N), np.zeros(N)),
        (np.arange(N), np.zeros(N), np.zeros(N)),
        (np.zeros(N), np.zeros(N), np.arange(N)),
        (np.arange(N), np.arange(N), np.arange(N)),
        (np.arange(N), N - np.arange(N), np.zeros(N)),
        (np.zeros(N), np.arange(N), N - np.arange(N)),
        (np.arange(N) * 2.0**40, np.ones(N), np.ones(N)),
    ],
    ids=["places", "seeds", "numbers", "all up", "seeds against places", "places against numbers", "high bits"],
)
def test_neighbouring_times_are_exponential_and_unlike(
    times_of: Callable[[Seeds, Ids, Ids], Times],
    seeds: np.ndarray[tuple[int], np.dtype[np.float64]],
    places: np.ndarray[tuple[int], np.dtype[np.float64]],
    numbers: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> None:
    times = times_of(seeds.astype(np.uint64), places.astype(np.int64), numbers.astype(np.int64))
    uniform = np.exp(-times)
    assert times.min() > 0.0
    assert chi_square(uniform) < CHI_SQUARE_99
    assert abs(np.corrcoef(uniform[1:], uniform[:-1])[0, 1]) < 0.015  # 3.3 standard errors


def test_the_times_of_a_seed_never_change() -> None:
    """Published texts depend on them: a change here changes what every recorded seed says."""
    seeds = np.array([0, 0, 1, 2**64 - 1], dtype=np.uint64)
    places = np.array([0, 1, 0, 4095])
    assert np.round(token_times(seeds, places, np.array([0, 7, 49_151, 3])), 12).tolist() == FIRST_TOKEN_TIMES
    assert np.round(block_times(seeds, places, np.array([0, 7, 191, 3])), 12).tolist() == FIRST_BLOCK_TIMES


FIRST_TOKEN_TIMES = [0.370635623178, 1.60701714934, 2.190348210479, 0.708124135405]
FIRST_BLOCK_TIMES = [0.138046594685, 1.015805521622, 0.333652535192, 0.326330959018]


def many(count: int) -> tuple[Seeds, Ids]:
    return np.arange(count, dtype=np.uint64), np.arange(count) % 17


@pytest.mark.parametrize("offset", [0, 255, 256, 700])
def test_tokens_win_in_proportion_to_their_weights(offset: int) -> None:
    count = 20_000
    weights = torch.zeros(1, 1000)
    weights[0, [offset, offset + 1, offset + 2, 999]] = torch.tensor([1.0, 2.0, 0.0, 5.0])
    seeds, places = many(count)
    tokens = draw_rows(weights.expand(count, -1).numpy(), seeds, places)
    shares = np.bincount(tokens, minlength=1000)[[offset, offset + 1, offset + 2, 999]] / count
    assert np.abs(shares - np.array([1, 2, 0, 5]) / 8).max() < 0.012  # 3.4 standard errors
    ids = np.flatnonzero(weights[0].numpy())
    own = [draw_one(ids, weights[0].numpy()[ids], seeds[i], int(places[i])) for i in range(4000)]
    shares = np.bincount(own, minlength=1000)[[offset, offset + 1, 999]] / 4000
    assert np.abs(shares - np.array([1, 2, 5]) / 8).max() < 0.027


def test_a_weight_of_nothing_never_wins() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand((2000, 1000), generator=generator) ** 8
    weights[torch.rand((2000, 1000), generator=generator) < 0.9] = 0.0
    weights[:, 5] = 1e-30
    tokens = draw_rows(weights.numpy(), *many(2000))
    assert bool((weights[torch.arange(2000), torch.from_numpy(tokens)] > 0).all())


def test_a_little_noise_on_every_weight_hardly_ever_changes_a_winner() -> None:
    """A long flat tail, where a cumulative sum would carry the noise to every token behind it."""
    count = 2000
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand((count, 20 * BLOCK), generator=generator)
    noise = 1.0 + 2e-5 * (torch.rand(weights.shape, generator=generator) - 0.5)
    seeds, places = many(count)
    before = draw_rows(weights.numpy(), seeds, places)
    after = draw_rows((weights * noise).numpy(), seeds, places)
    assert np.count_nonzero(before != after) <= 2
