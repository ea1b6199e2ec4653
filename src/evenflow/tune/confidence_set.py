"""Which configurations the data cannot tell from the best: the model confidence set of Hansen, Lunde and Nason (2011).

    all in -> are they equally good? -- no --> the worst one goes -> again
                     | cannot be denied
                     v
              those that are left hold the best one with the stated confidence

The test looks at the configuration that is worst against the average of all that are left, in its own standard errors
(their T_max), and asks how often chance alone, by the bootstrap, would make *some* configuration look as bad. So many
configurations are compared with one error rate for all of them together. Losses are paired, because every configuration
met the same requests.
"""

import numpy as np

from evenflow.replay.bootstrap import Floats
from evenflow.tune.resampled import Figures

CONFIDENCE = 0.95


def confidence_set(losses: Figures, *, confidence: float = CONFIDENCE) -> tuple[int, ...]:
    """Indices of the columns that are left, in order. A loss is better if it is smaller; infinite ones go first."""
    observed, resampled = losses.observed, losses.resampled
    left = np.flatnonzero(np.isfinite(observed) & np.isfinite(resampled).all(axis=0))
    if not len(left):
        return tuple(range(len(observed)))
    while len(left) > 1:
        excess = observed[left] - observed[left].mean()
        chance = resampled[:, left] - resampled[:, left].mean(axis=1, keepdims=True) - excess
        ratios, under_chance = _in_errors(excess, chance)
        worst = int(np.argmax(ratios))
        if float(np.mean(under_chance >= ratios[worst])) >= 1.0 - confidence:
            break
        left = np.delete(left, worst)
    return tuple(int(index) for index in left)


def _in_errors(excess: Floats, chance: Floats) -> tuple[Floats, Floats]:
    """Each excess in its own standard errors, and the largest such ratio in every resample."""
    errors = chance.std(axis=0)
    scale = float(np.abs(excess).max(initial=0.0)) or 1.0
    # Runs that are the same to the last digit have no error; a difference that never varies is beyond any chance.
    errors = np.maximum(errors, 1e-12 * scale)
    return excess / errors, np.asarray((chance / errors).max(axis=1))
