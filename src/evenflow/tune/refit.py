"""TEMPORARY until the fit is there."""

from collections.abc import Sequence
from pathlib import Path

from evenflow.simulate.cost import StepCost


def refitted(logs: Sequence[Path], cost: StepCost, path: Path) -> StepCost | None:
    return None
