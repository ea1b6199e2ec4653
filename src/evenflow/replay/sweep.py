"""The same replay at several points: one result each, and one failing point does not end the others.

Nothing is read from what a program prints. A point gives a Result, or the error that says why there is none.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from evenflow.core.errors import ConfigError, EvenflowError
from evenflow.replay.result import Result
from evenflow.replay.run import Replay


@dataclass(frozen=True, slots=True)
class Point:
    """`error` is None exactly if there is a result."""

    what: Replay
    result: Result | None
    error: EvenflowError | None


def parse_scales(text: str) -> tuple[float, ...]:
    try:
        scales = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"rate_scales are numbers with commas between, such as 0.5,1,2, not {text!r}") from None
    if not all(0.0 < scale < float("inf") for scale in scales) or len(set(scales)) < len(scales):
        raise ConfigError(f"rate_scales must be different numbers above 0, not {text!r}")
    return scales


def at_rates(what: Replay, scales: Sequence[float]) -> list[Replay]:
    """Named after their scale."""
    return [
        replace(what, name=f"{what.name}-x{scale:g}", load=replace(what.load, rate_scale=scale)) for scale in scales
    ]


def sweep(points: Sequence[Replay], run: Callable[[Replay], Result]) -> Iterator[Point]:
    for what in points:
        try:
            yield Point(what, run(what), None)
        except EvenflowError as error:
            yield Point(what, None, error)
