"""The ready-made costs that come with evenflow (data/NOTICE), and how a cost is named: one of them, or a file."""

from importlib import resources
from pathlib import Path

from evenflow.core.policy.spelling import nearest
from evenflow.simulate.cost import StepCost
from evenflow.simulate.cost_file import CostError, load_cost, parse_cost


def ready_made() -> tuple[str, ...]:
    folder = resources.files("evenflow.simulate").joinpath("data")
    return tuple(sorted(each.name.removesuffix(".json") for each in folder.iterdir() if each.name.endswith(".json")))


def find_cost(name_or_path: str, *, force: bool = False) -> StepCost:
    """Raises CostError with what there is."""
    names = ready_made()
    if name_or_path in names:
        file = resources.files("evenflow.simulate").joinpath("data", f"{name_or_path}.json")
        return parse_cost(file.read_bytes(), name_or_path)
    path = Path(name_or_path)
    if not path.exists() and not path.suffix:
        close = nearest(name_or_path, names)
        meant = f"did you mean {close}? " if close in names else ""
        raise CostError(
            f"there is no cost {name_or_path!r}; {meant}"
            "It is a file of `evenflow calibrate`, or one of `evenflow costs`"
        )
    return load_cost(path, force=force)
