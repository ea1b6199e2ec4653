"""The cost once more, fitted to the steps of the live runs.

They are what the engine does with this very load, at the configurations that matter. What they did not visit (another
configuration may) is taken from the cost as it was, times how far that was off where they did:

    live steps                                    as measured, a fit's usual samples
    the old cost's hull, where no live step was   what the old cost says x (measured / predicted time of live steps)
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from evenflow.core.errors import EvenflowError
from evenflow.observe.log import read_log
from evenflow.simulate.cost import StepCost, StepFeatures
from evenflow.simulate.cost_file import save_cost
from evenflow.simulate.fit import LEAST_STEPS, StepSample, fit_cost
from evenflow.simulate.samples import samples_of

_PER_AXIS = 7
_MOST_BORROWED = 0.1
"""Of the samples: the live ones should decide where they are."""


def refitted(logs: Sequence[Path], cost: StepCost, path: Path) -> StepCost | None:
    """Writes the new cost to `path`; None if the logs hold too few steps, or cannot be read."""
    try:
        live = [sample for log in logs for sample in _samples(log)]
        if len(live) < LEAST_STEPS:
            return None
        borrowed = list(_borrowed(live, cost))
        most = max(1, int(_MOST_BORROWED * len(live)))
        chosen = [borrowed[i] for i in np.linspace(0, len(borrowed) - 1, most).astype(int)] if borrowed else []
        identity = replace(cost.identity, description=f"{cost.identity.description or 'measured'}, refitted live")
        found = fit_cost(identity, [*live, *chosen], kv_tokens=cost.kv_tokens)
    except EvenflowError:
        return None  # the cost as it was is still there
    found = replace(
        found,
        block_size=cost.block_size,
        swap_block_seconds=found.swap_block_seconds or cost.swap_block_seconds,
        notes=(*cost.notes, f"refitted to {len(live)} steps of {len(logs)} live runs", *found.notes),
    )
    save_cost(path, found)
    return found


def _samples(log: Path) -> list[StepSample]:
    with read_log(log) as events:
        return list(samples_of(events))


def _borrowed(live: Sequence[StepSample], cost: StepCost) -> Iterator[StepSample]:
    """Prefill and decode tokens over the old hull, with contexts as long as the old cost saw for so many tokens."""
    hull = {bounds.feature: bounds for bounds in cost.hull}
    if not hull:
        return
    factor = sum(sample.seconds for sample in live) / sum(cost.seconds(sample.features) for sample in live)
    most = StepFeatures(*(max(sample.features[i] for sample in live) for i in range(len(StepFeatures._fields))))
    prefills, decodes = (_steps(hull[name].high) for name in ("prefill_tokens", "decode_tokens"))
    for prefill, decode in product(prefills, decodes):
        share_p, share_d = prefill / max(1.0, prefills[-1]), decode / max(1.0, decodes[-1])
        features = StepFeatures(
            prefill,
            decode,
            int(hull["prefill_context"].high * share_p),
            int(hull["decode_context"].high * share_d),
            decode + (1 if prefill else 0),
        )
        beyond = any(mine > theirs for mine, theirs in zip(features, most, strict=True))
        if features.num_tokens and beyond and not cost.outside_hull(features):
            yield StepSample(features, cost.seconds(features) * factor)


def _steps(high: float) -> list[int]:
    return sorted({0, *(round(high ** (i / (_PER_AXIS - 1))) for i in range(_PER_AXIS))})
