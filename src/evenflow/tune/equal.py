"""Settings that are one as far as anyone can tell: their simulated runs are the same to the last digit.

A knob that never bound (17 seats where 16 are never taken at once, a token budget that no step fills) makes no
difference to this load: the same steps feed the same tokens of the same requests. A live run could only find how noisy
the machine is. So they count as one, and one stands for them all:

    seats, KV share      the largest. Where more comes than the trace has, or the machine is slow, a smaller cap makes
                         requests wait in front of room that is there; if memory runs short, preemption sees to it.
    tokens per step      the smallest. It bounds how long a step lasts, and so how long everybody's stream can stall;
                         no step of this load wanted more.
    policies             the one named first
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from evenflow.tune.observations import Observations
from evenflow.tune.space import Cell, Value

_MORE_ROOM = ("max_num_seqs", "kv_share")


def same_runs(one: Observations, other: Observations) -> bool:
    """Every step's time is drawn anew, so times that are equal to the last digit are of equal steps."""
    if one.samples.keys() != other.samples.keys():
        return False
    for key, mine in one.samples.items():
        theirs = other.samples[key]
        if not (np.array_equal(mine.values, theirs.values) and np.array_equal(mine.blocks, theirs.blocks)):
            return False
        if mine.weights is not None and not (
            theirs.weights is not None and np.array_equal(mine.weights, theirs.weights)
        ):
            return False
    return True


def equal_cells(runs: Iterable[tuple[Cell, Observations]]) -> tuple[tuple[Cell, ...], ...]:
    """All cells, in groups; in each the one that stands for it comes first."""
    groups: list[list[tuple[Cell, Observations]]] = []
    for cell, run in runs:
        for group in groups:
            if same_runs(group[0][1], run):
                group.append((cell, run))
                break
        else:
            groups.append([(cell, run)])
    return tuple(roomiest_first([cell for cell, _ in group]) for group in groups)


def roomiest_first(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """Those that are equal in room as they come."""
    return tuple(sorted(cells, key=_room))


def _room(cell: Cell) -> tuple[float, ...]:
    values: Mapping[str, Value] = dict(cell.values)
    return (*(-float(values.get(name, 0)) for name in _MORE_ROOM), float(values.get("max_num_batched_tokens", 0)))
