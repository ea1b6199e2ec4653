"""Whether a cost is of the engine that it is used for: how it computes decides what a step takes.

A measured cost keeps the settings that its engine announced. Those that change a step's time are compared by name with
another engine's; what one of them does not say is not a difference.
"""

from collections.abc import Mapping
from pathlib import Path

from evenflow.core.events import ConfigChanged
from evenflow.observe.log import read_log
from evenflow.simulate.cost import Kind, StepCost

_OF_A_STEP = ("executor", "model", "dtype", "quantize", "kv_dtype", "kernels")
"""`executor` names the library and the number of threads."""


def different_settings(cost: StepCost, settings: Mapping[str, str]) -> tuple[str, ...]:
    """A phrase for each; none for a cost that is of other hardware on purpose."""
    if cost.identity.kind is not Kind.MEASURED:
        return ()
    measured = dict(cost.identity.settings)
    return tuple(
        f"{name} was {measured[name]!r} when it was measured and is {settings[name]!r}"
        for name in _OF_A_STEP
        if name in measured and name in settings and measured[name] != settings[name]
    )


def different_from_log(cost: StepCost, log: Path) -> tuple[str, ...]:
    """As above, by what the engine that wrote a log announced when it began. Raises LogError."""
    with read_log(log) as events:
        started = next((event for event in events if isinstance(event, ConfigChanged)), None)
    return different_settings(cost, dict(started.settings)) if started is not None else ()
