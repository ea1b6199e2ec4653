"""Figures of several rounds as one: of each the median."""

from collections.abc import Sequence
from dataclasses import fields, replace
from statistics import median
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Figures = TypeVar("Figures", bound="DataclassInstance")


def medians(found: Sequence[Figures]) -> Figures:
    """`found` are dataclasses of numbers, one for each round; a whole number stays one, and `rounds` is how many."""
    first = found[0]
    middle = {each.name: median(getattr(one, each.name) for one in found) for each in fields(first)}
    same_type = {name: type(getattr(first, name))(value) for name, value in middle.items()}
    return replace(first, **{**same_type, "rounds": len(found)})
