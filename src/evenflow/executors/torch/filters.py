"""Which tokens min_p, top_k and top_p leave of one row of weights. The heaviest weight is 1.

    min_p    drop w < min_p
    top_k    keep the k heaviest
    top_p    of what is left, keep the fewest heaviest tokens that hold top_p of its weight

Among equal weights the lower id comes first. Nothing is ever sorted but a handful of candidates: they are found by
block maxima (vocab_blocks.py), by selection, or, where the edge of top_p lies among many tokens, by adding masses up
in bins of nearly equal ones. So a flat row, which a hot temperature makes, costs a tenth of sorting it.

What weights weigh are their masses (weights.py), whose sums are exact: what is left does not depend on how it is found.
kernels/csrc/sampling.h finds the same by radix selection.
"""

import numpy as np

from evenflow.executors.torch.vocab_blocks import Floats, Ids, at_least, heaviest
from evenflow.executors.torch.weights import masses

FEW = 1024


def survivors(weights: Floats, maxima: Floats, total: float, *, top_k: int, top_p: float, min_p: float) -> Ids:
    """The ids that are left, ascending; never empty. `total` is the mass of the weights, `maxima` those of its blocks.

    `top_k` 0, `top_p` 1 and `min_p` 0 are off.
    """
    if top_k:
        ids = heaviest(weights, maxima, top_k)
        ids = ids[weights[ids] >= min_p]
    elif min_p:
        ids = at_least(weights, maxima, min_p)
    else:
        mass = top_p * total
        return _nucleus(_enough(weights, maxima, mass), weights, mass)
    if top_p == 1.0:
        return ids
    return _nucleus(ids, weights, top_p * float(masses(weights[ids]).sum()))


def _enough(weights: Floats, maxima: Floats, mass: float) -> Ids:
    """Tokens that weigh at least `mass`, and among them everyone as heavy as the lightest of them."""
    bound = 2.0**-5
    while bound > 2.0**-100:
        ids = at_least(weights, maxima, bound)
        if masses(weights[ids]).sum() >= mass:
            return ids
        bound *= 2.0**-5
    return np.arange(len(weights))


def _nucleus(ids: Ids, weights: Floats, mass: float) -> Ids:
    """The fewest heaviest of `ids` that weigh at least `mass`."""
    values = weights[ids]
    if len(ids) > FEW:
        # The upper half of a float, read as an integer, orders positive floats into bins less than 1 % wide.
        bins = values.view(np.int32) >> 16
        at_or_above = np.cumsum(np.bincount(bins, weights=masses(values))[::-1])[::-1]
        edge = max(int(np.searchsorted(-at_or_above, -mass, side="right")) - 1, 0)
        above, within = bins > edge, np.flatnonzero(bins == edge)
        rest = mass - (float(at_or_above[edge + 1]) if edge + 1 < len(at_or_above) else 0.0)
        within = within[_head(values[within], rest)]
        return np.sort(np.concatenate((ids[above], ids[within])))
    return np.sort(ids[_head(values, mass)])


def _head(values: Floats, mass: float) -> Ids:
    """Indices of the fewest heaviest values that weigh at least `mass`."""
    order = np.argsort(-values, kind="stable")
    cumulative = np.cumsum(masses(values[order]))
    return order[: int(np.searchsorted(cumulative, mass, side="left")) + 1]
