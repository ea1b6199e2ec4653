"""Where an experiment of the study is run: it hands in requests and settings, and gets every request's times back.

The lab decides what runs them: a simulated engine on some device's step costs, or a live server on this machine. Loads
are given in shares of what the lab's engine can do, so that the same experiment makes sense on both.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from evenflow.replay.record import Record
from evenflow.replay.result import Result
from evenflow.tune.settings import Settings
from evenflow.workload.trace import TraceRequest

Who = Callable[[Record], bool]


def everybody(record: Record) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Played:
    """A load that ran to its end."""

    result: Result
    num_preemptions: int

    def records(self, who: Who = everybody) -> list[Record]:
        return [record for record in self.result.records if record.ok and who(record)]

    @property
    def seconds(self) -> float:
        """From the first arrival to the last token."""
        times = [record.finished for record in self.records() if record.finished is not None]
        return max(times, default=0.0) - min((record.intended for record in self.result.records), default=0.0)

    @property
    def requests_per_second(self) -> float:
        return len(self.records()) / self.seconds

    def tokens_per_second(self, who: Who = everybody, within: float | None = None) -> float:
        """Output tokens; of the first `within` seconds if given."""
        end = self.seconds if within is None else within
        return (
            sum(
                num
                for record in self.records(who)
                for time, num in zip(record.chunk_times, record.chunk_tokens, strict=True)
                if time <= end
            )
            / end
        )

    def ttft(self, percent: float | None = None, who: Who = everybody) -> float:
        """Seconds; the mean if no percentile is given."""
        return _statistic((record.ttft for record in self.records(who) if record.ttft is not None), percent)

    def e2e(self, percent: float | None = None, who: Who = everybody) -> float:
        return _statistic((record.e2e for record in self.records(who) if record.e2e is not None), percent)

    def itl(self, percent: float | None = None, who: Who = everybody) -> float:
        gaps = [record.token_gaps() for record in self.records(who)]
        return _statistic(np.concatenate(gaps) if gaps else (), percent)


def _statistic(values: Iterable[float] | NDArray[np.float64], percent: float | None) -> float:
    found = np.fromiter(values, dtype=np.float64)
    if not len(found):
        return 0.0
    return float(found.mean() if percent is None else np.percentile(found, percent))


class Lab(Protocol):
    @property
    def name(self) -> str:
        """For the report: what ran it."""
        ...

    @property
    def max_num_seqs(self) -> int:
        """Seats that a well-set engine has here."""
        ...

    @property
    def max_num_batched_tokens(self) -> int:
        """... and tokens of a step."""
        ...

    def count(self, requests: int) -> int:
        """How many requests a load has here that has so many at full size."""
        ...

    def tokens(self, tokens: int) -> int:
        """How long a text is here that has so many tokens at full size."""
        ...

    def play(self, load: Sequence[TraceRequest], settings: Settings, *, replicas: int = 1) -> Played:
        """Of several replicas a request goes to the one with the least left to do. Live there is one."""
        ...

    def with_host_memory(self, seconds_per_block: float) -> "Lab | None":
        """The same engine with host memory to swap to, and a link that takes so long for a block; None if the lab
        cannot choose its link."""
        ...
