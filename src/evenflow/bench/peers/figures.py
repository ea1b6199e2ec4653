"""What was measured, one record per contender, and medians over the rounds."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from evenflow.bench.peers.contenders import OWN_ENGINE, LeftOut, Precision
from evenflow.bench.peers.engines import Batch, SingleStream
from evenflow.bench.peers.machine import Machine
from evenflow.bench.peers.messages import Step
from evenflow.observe.tails import Tail, tail_of
from evenflow.replay.request import ObservedRequest


@dataclass(frozen=True, slots=True)
class Throughput:
    """All requests at once: what each round took, and rates of the median round. `requests` may be fewer than the
    workload has. `floor_seconds` is of evenflow only: what its matrix products alone took after each round."""

    requests: int
    prompt_tokens: int
    output_tokens: int
    wall_seconds: tuple[float, ...]
    floor_seconds: tuple[float, ...]
    steps: int
    seconds: float
    output_tokens_per_second: float
    total_tokens_per_second: float
    requests_per_second: float
    share_of_products: float | None

    @classmethod
    def of(cls, requests: int, batches: Sequence[Batch], floors: Sequence[float] = ()) -> "Throughput":
        walls = [batch.wall_seconds for batch in batches]
        seconds, first = median(walls), batches[0]
        shares = [floor / wall for floor, wall in zip(floors, walls, strict=bool(floors))]
        return cls(
            requests=requests,
            prompt_tokens=first.prompt_tokens,
            output_tokens=first.output_tokens,
            wall_seconds=tuple(walls),
            floor_seconds=tuple(floors),
            steps=round(median(len(batch.steps) for batch in batches)),
            seconds=seconds,
            output_tokens_per_second=first.output_tokens / seconds,
            total_tokens_per_second=(first.prompt_tokens + first.output_tokens) / seconds,
            requests_per_second=requests / seconds,
            share_of_products=median(shares) if shares else None,
        )


@dataclass(frozen=True, slots=True)
class Latency:
    """W3 at `rate` requests per second, all rounds in one sample. Milliseconds; None where the sample is too small."""

    rate: float
    ttft: Tail
    itl: Tail

    @classmethod
    def of(cls, rate: float, rounds: Sequence[Sequence[ObservedRequest]]) -> "Latency":
        observed = [request for each in rounds for request in each]
        firsts = [request.ttft * 1e3 for request in observed if request.ttft is not None]
        gaps = [gap * 1e3 for request in observed for gap in request.gaps]
        return cls(rate, tail_of(firsts), tail_of(gaps))


@dataclass(frozen=True, slots=True)
class StepTime:
    """A decode step of `running` requests, each with about `context` tokens before it: the median."""

    context: int
    running: int
    milliseconds: float


@dataclass(slots=True, eq=False)
class Entry:
    """One contender's row. What was not asked for, or not reached, is empty; `failure` says why it was not reached.

    `first_requests` is how many of W1 it ran, where it did not run all. `online` is by share of the best peer's rate.
    `others` is the largest share of the machine that others took in one of its turns.
    """

    name: str
    engine: str
    precision: Precision
    first_requests: int | None = None
    version: str | None = None
    start_seconds: float | None = None
    server_start_seconds: float | None = None
    w1: Throughput | None = None
    w2: SingleStream | None = None
    long: Throughput | None = None
    context: tuple[StepTime, ...] = ()
    online: dict[float, Latency] = field(default_factory=dict)
    others: float | None = None
    failure: str | None = None

    @property
    def is_peer(self) -> bool:
        return self.engine != OWN_ENGINE


@dataclass(frozen=True, slots=True)
class Results:
    """`peak_rate` is the best peer's request rate in W1, of which the rates of w3 are shares."""

    machine: Machine
    rounds: int
    threads: int
    quick: bool
    entries: tuple[Entry, ...]
    left_out: tuple[LeftOut, ...]
    peak_rate: float | None


def middle(streams: Sequence[SingleStream]) -> SingleStream:
    return SingleStream(median(each.ttft_ms for each in streams), median(each.ms_per_token for each in streams))


def decode_step(context: int, running: int, steps: Sequence[Step]) -> StepTime | None:
    """Of the steps in which all of them decode, and nothing else is done."""
    full = [step for step in steps if step.tokens == step.sampled == running and step.attended > running * context]
    return StepTime(context, running, float(np.median([s.seconds for s in full])) * 1e3) if full else None


def best_peer_rate(entries: Sequence[Entry]) -> float | None:
    """Requests per second of W1 of the fastest peer that ran all of it."""
    rates = [
        entry.w1.requests_per_second
        for entry in entries
        if entry.is_peer and entry.w1 is not None and entry.first_requests is None
    ]
    return max(rates, default=None)
