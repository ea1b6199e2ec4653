"""How fast and how small the simulator is, with the production scheduler inside.

stepping   steps per second without leaps, at a few and at many streams: the scheduler's own work is most of it
an hour    the Azure conversation hour (19,366 requests), leaps allowed; a likeness of it where the file is not there
memory     bytes of a request that waits or runs, and of one that has ended: traced allocations over their number,
               without the prefix cache, whose index grows with the KV memory and not with the requests
"""

import gc
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from math import inf
from random import Random

from evenflow.replay.request import PlannedRequest
from evenflow.simulate.arrivals import plans_of
from evenflow.simulate.catalogue import find_cost
from evenflow.simulate.config import SimulationConfig
from evenflow.simulate.cost import StepCost
from evenflow.simulate.replica import Replica
from evenflow.simulate.run import simulate
from evenflow.workload.formats import azure_excerpt
from evenflow.workload.trace import TraceRequest

COST = "h100-80gb-x8-llama2-70b"
HOUR_REQUESTS = 19_366
_HOUR_RATE = 5.53


@dataclass(frozen=True, slots=True)
class SimulatorCost:
    """`streams` is the mean number of tokens of a decoding step. Seconds are wall clock."""

    steps_per_second_few: float
    streams_few: float
    steps_per_second_many: float
    streams_many: float
    hour_requests: int
    hour_seconds: float
    hour_steps: int
    hour_leapt_share: float
    hour_requests_per_second: float
    bytes_per_request_in_flight: float
    bytes_per_finished_request: float


def likeness(count: int) -> list[TraceRequest]:
    """As many requests as the hour has, at its rate, with the lengths of its first 200 over and over."""
    rng, now, rows = Random(0), 0.0, []
    for request in islice(cycle(azure_excerpt().requests), count):
        rows.append(replace(request, arrival_seconds=now))
        now += rng.expovariate(_HOUR_RATE)
    return rows


def measure(
    rows: Sequence[TraceRequest], *, cost_name: str = COST, progress: Callable[[str], None] = lambda what: None
) -> SimulatorCost:
    cost = find_cost(cost_name)
    progress("stepping, up to 8 streams")
    few = _stepping(rows[:300], cost, 8)
    progress("stepping, up to 64 streams")
    many = _stepping(rows[:800], cost, 64)
    progress(f"{len(rows)} requests, with leaps")
    hour = simulate(rows, cost, _config(64))
    progress("memory")
    in_flight = _bytes_in_flight(rows[:4000], cost)
    finished = _bytes_finished(rows[:2000], cost)
    return SimulatorCost(
        *few,
        *many,
        len(rows),
        hour.seconds,
        hour.num_steps,
        hour.num_leapt_steps / hour.num_steps,
        len(rows) / hour.seconds,
        in_flight,
        finished,
    )


def _config(max_num_seqs: int) -> SimulationConfig:
    return SimulationConfig(policy="vllm", max_num_seqs=max_num_seqs, max_num_batched_tokens=2048)


_SMALL = replace(_config(64), prefix_caching=False, num_blocks=4096)
"""A pool that has soon gone round: what it allocates for itself while it does is not a request's."""


def _stepping(rows: Sequence[TraceRequest], cost: StepCost, max_num_seqs: int) -> tuple[float, float]:
    done = simulate(rows, cost, _config(max_num_seqs), leap=False)
    num_tokens = sum(row.num_output_tokens for row in rows)
    return done.num_steps / done.seconds, num_tokens / done.num_steps


def _replica(cost: StepCost) -> Replica:
    resolved = _SMALL.resolve(cost.kv_tokens)
    return Replica(0, resolved, cost, (), seed=0, sink=None, may_leap=True)


def _bytes_in_flight(rows: Sequence[TraceRequest], cost: StepCost) -> float:
    """All arrive at once; a few hundred steps later most wait and some run."""
    replica, plans = _replica(cost), plans_of(rows)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    num_ended = 0
    for plan in plans:
        num_ended += len(replica.accept(plan, 0.0))
    for _ in range(200):
        num_ended += len(replica.step(inf))
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / (len(plans) - num_ended)


def _bytes_finished(rows: Sequence[TraceRequest], cost: StepCost) -> float:
    """What a run leaves behind, less what a run of half its length leaves.

    A run that nobody counts comes first, so that neither pays for what is learned once (what a step of so many tokens
    costs), and dead objects that the interpreter keeps for reuse are let go: the first run would be charged for them,
    and the second use them for nothing.
    """
    half, plans = len(rows) // 2, plans_of(rows)
    _left_by(plans, cost)
    return (_left_by(plans, cost) - _left_by(plans[:half], cost)) / (len(plans) - half)


def _left_by(plans: Sequence[PlannedRequest], cost: StepCost) -> int:
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    done = simulate(plans, cost, _SMALL)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert done.num_steps > 0
    return after - before
