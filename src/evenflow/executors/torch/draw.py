"""Randomness by counter, and one token from weights.

The uniform number for a token is a hash of its request's seed and of its place in that request's output, nothing else:
what else is in the batch, how a prompt was chunked, a preemption or a restart cannot change it. The hash is two rounds
of the splitmix64 finaliser, which passes BigCrush as a counter-based generator (Steele, Lea, Flood 2014).

A token is drawn by the inverse of the cumulative distribution in id order,

    token = the first id with   w(0) + ... + w(id)  >  u * total

with weights in fp32 and their sums over blocks and ids in fp64: first the block is found, then the token in it. A token
of weight 0 is never drawn.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from evenflow.executors.torch.vocab_blocks import BLOCK, Floats, Ids, block_sums, take_blocks

Seeds = NDArray[np.uint64]
Uniforms = NDArray[np.float64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(x: Seeds) -> Seeds:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniforms(seeds: Seeds, positions: Ids) -> Uniforms:
    """One number in [0, 1) for each (seed, place in the output)."""
    counters = (positions + 1).astype(np.uint64) * _GOLDEN
    bits = _mix(_mix(seeds + _GOLDEN) + counters)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _targets(u: Uniforms, totals: Uniforms) -> Uniforms:
    return np.minimum(u * totals, np.nextafter(totals, 0.0))


def draw_rows(weights: torch.Tensor, which: Ids, u: Uniforms) -> Ids:
    """One token for each of the rows `which` of weights [n, vocab]; every row has a positive weight."""
    cumulative = np.cumsum(block_sums(weights)[which], axis=1, dtype=np.float64)
    target = _targets(u, cumulative[:, -1])
    blocks: Ids = (cumulative <= target[:, None]).sum(1)
    each = np.arange(len(which))
    before = np.where(blocks > 0, cumulative[each, blocks - 1], 0.0)
    inside = take_blocks(weights.numpy(), which, blocks, 0.0)
    reached: Ids = (np.cumsum(inside, axis=1, dtype=np.float64) <= (target - before)[:, None]).sum(1)
    # The fp32 sum of a block may round above the fp64 one; what falls between them belongs to its last token.
    last: Ids = BLOCK - 1 - (inside[:, ::-1] > 0).argmax(1)
    return blocks * BLOCK + np.minimum(reached, last)


def draw_one(ids: Ids, weights: Floats, u: float) -> int:
    """One of `ids` (ascending) by their weights."""
    cumulative = np.cumsum(weights, dtype=np.float64)
    total = cumulative[-1]
    target = min(u * total, np.nextafter(total, 0.0))
    return int(ids[np.searchsorted(cumulative, target, side="right")])
