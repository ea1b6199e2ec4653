"""From logits to weights, w = e^((logit - peak) / temperature), and what weights weigh together.

Who draws the same token everywhere needs the same bits everywhere, so both are made of single roundings only: no fused
multiply-add, no library's exponential, and sums that are exact. A weight's *mass* is the weight rounded to a multiple
of 2^-34, in double; the masses of 2^19 tokens are below 2^19, so that every partial sum is a double without rounding,
in whatever order. kernels/csrc/weights.h is the same arithmetic on vectors.
"""

import numpy as np
from numpy.typing import NDArray

from evenflow.executors.torch.vocab_blocks import BLOCK, Floats

Masses = NDArray[np.float64]

LARGEST_VOCABULARY = 2**19
_ROUNDING = 1.5 * 2.0**18  # adding and taking it away leaves a multiple of 2^(18 - 52)
_F = np.float32
# e^r - 1 - r over r^2, within 2e-9 of it for |r| <= ln 2 / 2; the highest power first.
_POLYNOMIAL = (
    _F(0.0013843652559444308),
    _F(0.008374163880944252),
    _F(0.04166800156235695),
    _F(0.16666431725025177),
    _F(0.4999999403953552),
    _F(1.0),
    _F(1.0),
)


def exponentials(x: Floats) -> Floats:
    """e^x for x <= 0, within 2 units in the last place; exactly 1 at 0, exactly 0 below -88, for -inf and for NaN.

    x = n ln 2 + r with |r| <= ln 2 / 2.
    """
    x = np.fmax(x, _F(-88.0))
    n = np.rint(x * _F(1.44269504))
    r = (x - n * _F(0.693359375)) - n * _F(-2.12194440e-4)  # the first product is exact
    p = np.full_like(x, _POLYNOMIAL[0])
    for coefficient in _POLYNOMIAL[1:]:
        p *= r
        p += coefficient
    powers: Floats = ((n.astype(np.int32) + 127) << 23).view(np.float32)  # 2^n, and 0 at -127
    p *= powers
    return p


def weigh(logits: Floats, peaks: Floats, temperatures: Floats) -> Floats:
    """Weights of rows [n, vocab]; `peaks` and `temperatures` are [n]. The heaviest weight of a row is 1."""
    with np.errstate(over="ignore"):
        scaled = (logits - peaks[:, None]) * (_F(1.0) / temperatures)[:, None]
    return exponentials(scaled)


def masses(weights: Floats) -> Masses:
    rounded: Masses = (weights.astype(np.float64) + _ROUNDING) - _ROUNDING
    return rounded


def block_masses(weights: Floats) -> Masses:
    """[n, vocab] -> [n, blocks]."""
    sums: Masses = np.add.reduceat(masses(weights), np.arange(0, weights.shape[1], BLOCK), axis=1)
    return sums
