"""When requests come, for sources without times and for loads of another shape.

    Poisson     independent gaps, exponential: many users who do not know of each other
    Gamma       gaps of a gamma distribution with shape `burstiness`: 1 is Poisson, below 1 bursts, above 1 is more even
    Uniform     equal gaps
    Staircase   Poisson whose rate changes from stage to stage

Gaps are drawn and never rescaled to an exact total: the number of requests in a span varies as it does in life.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random
from typing import Protocol

from evenflow.core.errors import ConfigError
from evenflow.workload.trace import TraceRequest


class Arrivals(Protocol):
    def times(self, count: int, rng: Random) -> tuple[float, ...]:
        """Of `count` requests, the first at 0; fewer only if the process ends before."""
        ...

    def describe(self) -> str: ...


def _check_rate(rate: float) -> None:
    if not 1e-9 <= rate <= 1e6:
        raise ConfigError(f"a rate must be above 0 (1e-09) and at most a million requests per second, not {rate}")


@dataclass(frozen=True, slots=True)
class Gamma:
    """The coefficient of variation of the gaps is 1 / sqrt(burstiness)."""

    rate: float
    burstiness: float

    def __post_init__(self) -> None:
        _check_rate(self.rate)
        if not 1e-6 <= self.burstiness <= 1e6:
            raise ConfigError(
                f"burstiness must be between 1e-06 and 1e+06 (1 is Poisson, less is burstier), not {self.burstiness}"
            )

    def times(self, count: int, rng: Random) -> tuple[float, ...]:
        scale = 1.0 / (self.rate * self.burstiness)
        gaps = (rng.gammavariate(self.burstiness, scale) for _ in range(count - 1))
        return tuple(accumulate(gaps, initial=0.0))

    def describe(self) -> str:
        return f"gamma, {self.rate:g}/s, burstiness {self.burstiness:g}"


@dataclass(frozen=True, slots=True)
class Poisson:
    rate: float

    def __post_init__(self) -> None:
        _check_rate(self.rate)

    def times(self, count: int, rng: Random) -> tuple[float, ...]:
        return tuple(accumulate((rng.expovariate(self.rate) for _ in range(count - 1)), initial=0.0))

    def describe(self) -> str:
        return f"Poisson, {self.rate:g}/s"


@dataclass(frozen=True, slots=True)
class Uniform:
    rate: float

    def __post_init__(self) -> None:
        _check_rate(self.rate)

    def times(self, count: int, rng: Random) -> tuple[float, ...]:
        return tuple(index / self.rate for index in range(count))

    def describe(self) -> str:
        return f"uniform, {self.rate:g}/s"


@dataclass(frozen=True, slots=True)
class Stage:
    rate: float
    seconds: float

    def __post_init__(self) -> None:
        _check_rate(self.rate)
        if not 0.0 < self.seconds < float("inf"):
            raise ConfigError(f"a stage must last longer than 0 s and end, not {self.seconds} s")


@dataclass(frozen=True, slots=True)
class Staircase:
    """Ends with its last stage; if the requests run out before that, it is an error, not a shorter staircase."""

    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        if not self.stages:
            raise ConfigError("a staircase needs stages, such as 100x30,200x30 (requests per second x seconds)")

    def times(self, count: int, rng: Random) -> tuple[float, ...]:
        times = [0.0]
        start = 0.0
        for stage in self.stages:
            end = start + stage.seconds
            # A Poisson process has no memory: it may begin anew with every stage.
            time = start + rng.expovariate(stage.rate)
            while time < end:
                times.append(time)
                if len(times) > count:
                    raise ConfigError(
                        f"the trace has {count} requests, which the stages use up after {time:.1f} of "
                        f"{sum(each.seconds for each in self.stages):g} s; shorten them or take a longer trace"
                    )
                time += rng.expovariate(stage.rate)
            start = end
        return tuple(times)

    def describe(self) -> str:
        return "staircase, " + ", ".join(f"{stage.rate:g}/s for {stage.seconds:g} s" for stage in self.stages)


def retime(requests: Sequence[TraceRequest], arrivals: Arrivals, rng: Random) -> tuple[TraceRequest, ...]:
    """The same requests in the same order, at the times of the process."""
    times = arrivals.times(len(requests), rng)
    return tuple(replace(request, arrival_seconds=time) for request, time in zip(requests, times, strict=False))
