"""What the bench asks of a running contender, whichever way it is run, and the check that it did all of it.

Every request ends at its own max_tokens, whatever the model says (end-of-sequence ignored), so that all do the same
work. A contender that gives fewer or more tokens than were asked for is not measured: it failed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from evenflow.bench.peers.messages import ContenderFailed, Step
from evenflow.workload.peer_format import PeerRequest


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds that a start, and one pass over a workload, may take."""

    start_seconds: float = 600.0
    run_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class Batch:
    """One pass over requests that were all there from the start. `steps` are known of evenflow only."""

    wall_seconds: float
    prompt_tokens: int
    output_tokens: int
    steps: tuple[Step, ...] = ()

    @property
    def output_tokens_per_second(self) -> float:
        return self.output_tokens / self.wall_seconds

    @property
    def total_tokens_per_second(self) -> float:
        return (self.prompt_tokens + self.output_tokens) / self.wall_seconds


@dataclass(frozen=True, slots=True)
class SingleStream:
    ttft_ms: float
    ms_per_token: float


class Engine(Protocol):
    """Every verb raises ContenderFailed."""

    @property
    def session(self) -> int:
        """The number of its session of processes."""
        ...

    @property
    def version(self) -> str: ...

    @property
    def start_seconds(self) -> float:
        """From the command until it took requests."""
        ...

    def batch(self, requests: Sequence[PeerRequest]) -> Batch: ...

    def single(self, request: PeerRequest) -> SingleStream: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def end(self) -> None: ...


def check_counts(what: str, seen: Sequence[int], expected: Sequence[int]) -> int:
    """Their sum, if they are what they should be."""
    if list(seen) != list(expected):
        wrong = sum(one != other for one, other in zip(seen, expected, strict=False))
        raise ContenderFailed(
            f"{sum(seen)} {what} tokens instead of {sum(expected)}; {wrong} of {len(expected)} requests differ"
            + ("" if len(seen) == len(expected) else f", and {len(seen)} were answered")
        )
    return sum(seen)
