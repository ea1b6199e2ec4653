"""What a configuration is asked for: a figure that should be as good as possible, and limits that it must keep.

    --slo ttft_p95=1s,itl_p99=150ms,interactive:ttft_p99=500ms      limits on a statistic of all (of a class's) requests
    --objective throughput                                         output tokens per second, the default
    --objective goodput:ttft=1s,itl=150ms                          requests per second that keep bounds of their own
    --objective ttft_p95                                           any statistic that may be limited

A request that failed keeps no bound, and counts as infinitely late in every statistic: a configuration cannot become
fast by refusing work.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

from evenflow.core.errors import ConfigError
from evenflow.replay.slo import METRICS, Objectives, parse_bounds, parse_seconds

_STATISTIC = re.compile(r"(?:([A-Za-z0-9_-]{1,64}):)?([a-z0-9]+)_(mean|p[0-9]{1,2}(?:\.[0-9]{1,2})?)")
THROUGHPUT = "throughput"
GOODPUT = "goodput"


@dataclass(frozen=True, slots=True)
class Statistic:
    """Of one latency over requests: its mean, or a percentile. Seconds."""

    metric: str
    percent: float | None
    service_class: str | None = None

    def __str__(self) -> str:
        whom = f"{self.service_class}:" if self.service_class is not None else ""
        return f"{whom}{self.metric}_{'mean' if self.percent is None else f'p{self.percent:g}'}"

    @property
    def title(self) -> str:
        whom = f"{self.service_class} " if self.service_class is not None else ""
        return f"{whom}{self.metric.upper()} {'mean' if self.percent is None else f'P{self.percent:g}'}"


@dataclass(frozen=True, slots=True)
class Limit:
    statistic: Statistic
    seconds: float

    def __str__(self) -> str:
        return f"{self.statistic}={self.seconds:g}s"


@dataclass(frozen=True, slots=True)
class Objective:
    """`statistic` is None for throughput and goodput; `bounds` are there for goodput only."""

    name: str
    statistic: Statistic | None = None
    bounds: Objectives | None = None

    @property
    def more_is_better(self) -> bool:
        return self.statistic is None

    @property
    def title(self) -> str:
        if self.statistic is not None:
            return self.statistic.title
        return "output tokens/s" if self.bounds is None else "goodput (requests/s)"


@dataclass(frozen=True, slots=True)
class Goal:
    objective: Objective
    limits: tuple[Limit, ...]

    def __str__(self) -> str:
        limits = ", ".join(map(str, self.limits)) or "no limit"
        return f"best {self.objective.name} with {limits}"


def parse_goal(objective: str, slo: str | None) -> Goal:
    return Goal(parse_objective(objective), parse_limits(slo) if slo else ())


def check_classes(goal: Goal, classes: Collection[str | None]) -> None:
    """Raises ConfigError for a class that no request is of: what nobody is in is never missed."""
    bounds = goal.objective.bounds.bounds if goal.objective.bounds is not None else ()
    statistics = [limit.statistic for limit in goal.limits]
    statistics += [goal.objective.statistic] if goal.objective.statistic is not None else []
    asked = [*(each.service_class for each in statistics), *(bound.service_class for bound in bounds)]
    for name in asked:
        if name is not None and name not in classes:
            there = ", ".join(sorted(each for each in classes if each is not None)) or "none"
            raise ConfigError(f"no request of the load is of the class {name!r}; its classes: {there}")


def parse_objective(text: str) -> Objective:
    name, colon, bounds = text.partition(":")
    if text == THROUGHPUT:
        return Objective(text)
    if name == GOODPUT:
        if not colon or not bounds:
            raise ConfigError("goodput is of bounds that each request should keep, as goodput:ttft=1s,itl=150ms")
        return Objective(text, bounds=Objectives(parse_bounds(bounds)))
    if _STATISTIC.fullmatch(text):
        return Objective(text, statistic=parse_statistic(text))
    raise ConfigError(
        f"an objective is throughput, goodput:ttft=1s,itl=150ms, or a statistic such as ttft_p95, not {text!r}"
    )


def parse_limits(text: str) -> tuple[Limit, ...]:
    limits: list[Limit] = []
    for part in text.split(","):
        name, equals, seconds = part.strip().partition("=")
        if not equals:
            raise ConfigError(f"a limit is like ttft_p95=1s, not {part.strip()!r}")
        statistic = parse_statistic(name.strip())
        if any(limit.statistic == statistic for limit in limits):
            raise ConfigError(f"the limit on {name.strip()} is given twice")
        value = parse_seconds(seconds, name.strip())
        if value <= 0.0:
            raise ConfigError(f"the limit on {name.strip()} must be above 0")
        limits.append(Limit(statistic, value))
    return tuple(limits)


def parse_statistic(text: str) -> Statistic:
    match = _STATISTIC.fullmatch(text)
    if match is None or match[2] not in METRICS:
        metrics = ", ".join(METRICS)
        raise ConfigError(f"a limit is on a statistic like ttft_p95 or tpot_mean, with one of {metrics}, not {text!r}")
    percent = None if match[3] == "mean" else float(match[3][1:])
    if percent is not None and not 0.0 < percent < 100.0:
        raise ConfigError(f"a percentile lies between 0 and 100, not {match[3]}")
    return Statistic(match[2], percent, match[1])
