"""Service level objectives per request, and who met them.

    ttft=1s,tpot=80ms                 for every request
    interactive:ttft=500ms            for one service class, which then answers to nothing else

`itl` bounds the longest gap between two tokens of the request. A request meets its objectives if it went well and keeps
every bound; a one-token answer has no TPOT and no ITL to keep.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evenflow.core.errors import ConfigError
from evenflow.replay.record import Record

METRICS = ("ttft", "itl", "tpot", "e2e")
_SPAN = re.compile(r"([0-9]*\.?[0-9]+)\s*(us|ms|s|m|min|h)?")
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}

_MOST_SECONDS = 1e9
_SHOWN_CHARACTERS = 40


def parse_seconds(text: str, name: str) -> float:
    """1.5, 1.5s, 150ms, 2m; without a unit, seconds."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{name} must be a time like 1.5s or 150ms, not {text[:_SHOWN_CHARACTERS]!r}")
    seconds = float(match[1]) * _UNITS[match[2] or "s"]
    if seconds > _MOST_SECONDS:
        raise ConfigError(f"{name} must be less than 30 years, not {text[:_SHOWN_CHARACTERS]}")
    return seconds


@dataclass(frozen=True, slots=True)
class Bound:
    """`service_class` None is everyone who has no bounds of their own."""

    service_class: str | None
    metric: str
    seconds: float

    def __str__(self) -> str:
        whom = f"{self.service_class}:" if self.service_class is not None else ""
        return f"{whom}{self.metric}={self.seconds:g}s"


def parse_bounds(text: str) -> tuple[Bound, ...]:
    return tuple(_bounds(text))


def _bounds(text: str) -> Iterator[Bound]:
    seen: set[tuple[str | None, str]] = set()
    for part in text.split(","):
        name, equals, seconds = part.strip().partition("=")
        whom, colon, metric = name.rpartition(":")
        if not equals or metric not in METRICS:
            raise ConfigError(f"an SLO is like ttft=1s, with one of {', '.join(METRICS)}, not {part.strip()!r}")
        key = (whom if colon else None, metric)
        if key in seen:
            raise ConfigError(f"the SLO {name} is given twice")
        seen.add(key)
        yield Bound(*key, parse_seconds(seconds, name))


@dataclass(frozen=True, slots=True)
class Objectives:
    bounds: tuple[Bound, ...]

    def of(self, record: Record) -> Sequence[Bound]:
        own = [bound for bound in self.bounds if bound.service_class == record.service_class is not None]
        return own or [bound for bound in self.bounds if bound.service_class is None]

    def met(self, record: Record) -> bool:
        return record.ok and all(_keeps(record, bound) for bound in self.of(record))


def _keeps(record: Record, bound: Bound) -> bool:
    match bound.metric:
        case "ttft":
            value = record.ttft
        case "tpot":
            value = record.tpot
        case "e2e":
            value = record.e2e
        case _:
            gaps = record.token_gaps()
            value = float(gaps.max()) if len(gaps) else None
    return value is None or value <= bound.seconds
