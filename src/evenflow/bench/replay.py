"""What the load generator itself can do, against a server that computes nothing: how late it sends, and how fast.

The client runs on one core, the server in a process of its own on another, so that neither waits for the other.

    lag      open loop, Poisson arrivals: actual send minus intended send
    most     closed loop: as many requests per second as one core can send and read
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from time import process_time

from evenflow.core.errors import EngineUnavailable
from evenflow.observe.tails import tail_of
from evenflow.replay.client import Outcome, run_load
from evenflow.replay.connection import parse_url
from evenflow.replay.pacing import ClosedLoop, OpenLoop, Pacing
from evenflow.replay.precise_loop import run_precisely
from evenflow.replay.prompts import IdPrompts
from evenflow.replay.request import PlannedRequest
from evenflow.replay.target import Target
from evenflow.workload.arrivals import Poisson

_POOL = range(100, 10_000)


@dataclass(frozen=True, slots=True)
class ReplayCost:
    """Lags in milliseconds; None where the sample is too small. `cpu_share` is of one core, during the open loop."""

    rate: float
    requests: int
    prompt_tokens: int
    output_tokens: int
    lag_p50_ms: float | None
    lag_p99_ms: float | None
    lag_max_ms: float
    cpu_share: float
    users: int
    most_requests_per_second: float
    failed: int


def measure(
    *, rate: float, seconds: float, users: int, prompt_tokens: int = 128, output_tokens: int = 16
) -> ReplayCost:
    count = max(2, round(rate * seconds))
    plans = [
        PlannedRequest(index, f"bench-{index}", send_at, prompt_tokens, output_tokens)
        for index, send_at in enumerate(Poisson(rate).times(count, Random(0)))
    ]
    with _noop_server() as url, _one_core():
        began = process_time()
        opened = _run(url, plans, OpenLoop())
        cpu_seconds = process_time() - began
        closed = _run(url, plans, ClosedLoop(users))
    lags = [request.sent - request.intended for request in opened.observed if request.sent is not None]
    tail = tail_of(lags)
    return ReplayCost(
        rate=rate,
        requests=len(plans),
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        lag_p50_ms=_milliseconds(tail.p50),
        lag_p99_ms=_milliseconds(tail.p99),
        lag_max_ms=round(max(lags) * 1e3, 3),
        cpu_share=round(cpu_seconds / (opened.end - opened.start), 3),
        users=users,
        most_requests_per_second=round(len(plans) / (closed.end - closed.start), 1),
        failed=sum(request.failure is not None for run in (opened, closed) for request in run.observed),
    )


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 3)


def _run(url: str, plans: list[PlannedRequest], pacing: Pacing) -> Outcome:
    target = Target(parse_url(url), "noop")
    return run_precisely(lambda: run_load(target, plans, IdPrompts(_POOL, 0), pacing=pacing))


@contextmanager
def _noop_server() -> Iterator[str]:
    command = [sys.executable, "-m", "evenflow.replay.noop_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        if not port:
            raise EngineUnavailable("the no-op server did not start")
        try:
            _pin(server.pid, first=1)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


@contextmanager
def _one_core() -> Iterator[None]:
    if sys.platform != "linux":
        yield
        return
    before = os.sched_getaffinity(0)
    _pin(0, first=0)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _pin(pid: int, *, first: int) -> None:
    """To one core; where there is only one, it is shared."""
    if sys.platform == "linux":
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(pid, {cores[first % len(cores)]})
