"""The name that was probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is spelled most alike; all of them if none is."""
    names = list(known)
    close = get_close_matches(name, names, 1, 0.5)
    return close[0] if close else ", ".join(names)
