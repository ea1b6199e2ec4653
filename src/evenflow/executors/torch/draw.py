"""Randomness by counter, and one token from weights, by a race.

Every contender runs for an exponentially distributed time divided by its weight, and the first to arrive wins; it wins
with a probability proportional to its weight (the Gumbel-max trick, in other words). A contender's time is a hash of
its request's seed, of the place in that request's output, and of its own number, nothing else: what else is in the
batch, how a prompt was chunked, a preemption or a restart cannot change it. The hash is the splitmix64 finaliser, which
passes BigCrush as a counter-based generator (Steele, Lea, Flood 2014).

Unlike the inverse of a cumulative distribution, a race hardly ever changes its winner when all weights change a bit:
fp32 logits differ in the last places with the shape of a batch, and a cumulative sum carries such a difference to
every token behind it. Blocks of 256 tokens race first, then the tokens of the winner: 448 times instead of 49,152.

The logarithm is our own, of single roundings only: kernels/csrc/race.h has the same one, and so the same winners.
"""

import numpy as np
from numpy.typing import NDArray

from evenflow.executors.torch.vocab_blocks import BLOCK, Floats, Ids, take_blocks
from evenflow.executors.torch.weights import Masses, block_masses

Seeds = NDArray[np.uint64]
Times = NDArray[np.float64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_BLOCKS = np.uint64(0xD1B54A32D192ED03)  # blocks and tokens run on tracks of their own
_TOKENS = np.uint64(0x8CB92BA72F3D8DD7)


def _mix(x: Seeds) -> Seeds:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _tracks(seeds: Seeds, places: Ids) -> Seeds:
    return _mix(_mix(seeds + _GOLDEN) + (places + 1).astype(np.uint64) * _GOLDEN)


def _times(tracks: Seeds, numbers: Ids, step: np.uint64) -> Times:
    """Exponentially distributed, mean 1, never 0: one for each number of each track; the two broadcast."""
    bits = _mix(tracks + (numbers + 1).astype(np.uint64) * step)
    return -natural_log(((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)


def natural_log(x: Times) -> Times:
    """Of normal positive numbers, within some 1e-16: x = 2^k z with z in [sqrt 1/2, sqrt 2), and
    log z = 2 atanh(s), s = (z - 1) / (z + 1), by its series."""
    bits = x.view(np.int64)
    k = (bits - 0x3FE6A09E667F3BCD) >> 52
    z = (bits - (k << 52)).view(np.float64)
    power = k.astype(np.float64)
    s = (z - 1.0) / (z + 1.0)
    q, twice = s * s, s + s
    p = np.full_like(x, 1.0 / 21.0)
    for odd in range(19, 1, -2):
        p = p * q + 1.0 / odd
    rest = twice * q * p + power * 1.90821492927058770002e-10
    logs: Times = power * 6.93147180369123816490e-01 + (twice + rest)  # the first product is exact
    return logs


def block_times(seeds: Seeds, places: Ids, blocks: Ids) -> Times:
    return _times(_tracks(seeds, places), blocks, _BLOCKS)


def token_times(seeds: Seeds, places: Ids, ids: Ids) -> Times:
    return _times(_tracks(seeds, places), ids, _TOKENS)


def _winners(times: Times, weights: Floats | Masses) -> Ids:
    """Of each row, the lowest among equals; a contender of weight 0 never arrives."""
    with np.errstate(divide="ignore"):
        winners: Ids = (times / weights).argmin(-1)
    return winners


def draw_rows(weights: Floats, seeds: Seeds, places: Ids) -> Ids:
    """One token for each row of weights [n, vocab]; every row's heaviest is 1."""
    sums = block_masses(weights)
    seeds, places = seeds[:, None], places[:, None]
    blocks = _winners(block_times(seeds, places, np.arange(sums.shape[1])), sums)
    inside = take_blocks(weights, np.arange(len(weights)), blocks, 0.0)
    ids = blocks[:, None] * BLOCK + np.arange(BLOCK)
    return blocks * BLOCK + _winners(token_times(seeds, places, ids), inside)


def draw_one(ids: Ids, weights: Floats, seed: np.uint64, place: int) -> int:
    """One of `ids` (ascending) by their weights."""
    return int(ids[_winners(token_times(np.array([seed]), np.array([place]), ids), weights)])
