"""`simulate`: a trace, a cost and a configuration to a result, by the live engine's own core on a virtual clock.

Of several replicas the one whose clock is behind steps first, so that a request which arrives finds each of them where
it is at that instant: no replica steps on while an arrival is due before its clock, and none is passed over.
"""

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from evenflow.core.errors import ConfigError
from evenflow.core.events import Event
from evenflow.replay.request import PlannedRequest, Reason
from evenflow.simulate.arrivals import Arrivals, plans_of
from evenflow.simulate.config import SimulationConfig
from evenflow.simulate.cost import StepCost
from evenflow.simulate.outcome import Kept, Simulation
from evenflow.simulate.replica import Ended, EventSink, PaceAt, Replica
from evenflow.simulate.router import router_of
from evenflow.workload.trace import TraceRequest

MAX_REPLICAS = 1024
_TELL_EVERY = 4096

Progress = Callable[[int, float], None]
"""Told now and then how many requests have ended, and what the simulated time is."""


def _nobody_listens(num_ended: int, now: float) -> None:
    pass


def simulate(
    rows: Sequence[TraceRequest | PlannedRequest],
    cost: StepCost,
    config: SimulationConfig = SimulationConfig(),
    *,
    seed: int = 0,
    replicas: int = 1,
    router: str = "round-robin",
    leap: bool = True,
    name: str = "simulation",
    keep_events: bool = False,
    sink: EventSink | None = None,
    load: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    slo: str | None = None,
    warm_up_seconds: float | None = None,
    pace: PaceAt | None = None,
    progress: Progress = _nobody_listens,
) -> Simulation:
    """Raises ConfigError, PolicyError. Two simulations of one seed have common random numbers.

    `sink` is given (replica, events) as they come; `keep_events` keeps them all in the result instead, which is for
    small runs. `leap` takes many steps at once where nothing can change, with the same outcome to the bit. `pace` is a
    factor on what a step takes, by the time at which it begins.
    """
    if not rows:
        raise ConfigError("there is nothing to simulate: the trace has no requests")
    if not 1 <= replicas <= MAX_REPLICAS:
        raise ConfigError(f"replicas must be between 1 and {MAX_REPLICAS}, not {replicas}")
    if seed < 0:
        raise ConfigError(f"a seed must be 0 or more, not {seed}")
    began = time.perf_counter()
    plans = plans_of(rows)
    if len({plan.request_id for plan in plans}) < len(plans):
        raise ConfigError("two rows have the same request id")
    kept_events: list[Event] = []
    resolved = config.resolve(cost.kv_tokens)
    settings = (*config.settings(resolved), ("cost", cost.identity.description or cost.identity.kind.value))
    arrivals = Arrivals(plans)
    engines = [
        Replica(
            number,
            resolved,
            cost,
            settings,
            seed=seed,
            sink=_both(sink, kept_events) if keep_events else sink,
            pace=pace,
            may_leap=leap and not (replicas > 1 and arrivals.some_wait_for_a_parent),
        )
        for number in range(replicas)
    ]
    with _without_cycle_search():
        kept = _Run(arrivals, engines, router).to_the_end(progress)
    ends = [engine.now for engine in engines]
    start = min(plan.send_at for plan in plans)
    return Simulation(
        name=name,
        plans=plans,
        num_steps=sum(engine.num_steps for engine in engines),
        num_leapt_steps=sum(engine.num_leapt_steps for engine in engines),
        num_preemptions=sum(engine.num_preemptions for engine in engines),
        seconds=time.perf_counter() - began,
        span_seconds=max(ends) - start,
        machine_seconds=sum(max(0.0, end - start) for end in ends),
        outside_hull=_counts(engines),
        num_steps_outside_hull=sum(engine.timer.num_outside_hull for engine in engines),
        target=_target(cost, settings, replicas, router),
        load=dict(load or {}),
        notes=(*notes, *cost.notes, *_hull_notes(engines)),
        events=tuple(kept_events),
        kept=kept,
        replicas=tuple(engines),
        slo=slo,
        warm_up_seconds=warm_up_seconds,
    )


class _Run:
    def __init__(self, arrivals: Arrivals, engines: Sequence[Replica], router: str) -> None:
        self._arrivals = arrivals
        self._engines = engines
        self._router = router_of(router)
        self._kept = Kept(len(arrivals.plans))
        self._place_of: dict[str, int] = {}
        self._num_ended = 0

    def to_the_end(self, progress: Progress) -> Kept:
        arrivals, engines = self._arrivals, self._engines
        turns = 0
        while True:
            turns += 1
            if turns % _TELL_EVERY == 0:
                progress(self._num_ended, min(engine.now for engine in engines))
            next_time = arrivals.next_time
            engine = None
            for each in engines:
                if each.has_work and (engine is None or each.now < engine.now):
                    engine = each
            if engine is not None and engine.now < next_time:
                self._end(engine.step(next_time))
            elif next_time < float("inf"):
                self._send(*arrivals.take())
            else:
                return self._kept

    def _send(self, now: float, place: int) -> None:
        plan = self._arrivals.plans[place]
        chosen = self._router.choose(plan, self._engines) if len(self._engines) > 1 else 0
        self._place_of[plan.request_id] = place
        self._kept.send(place, chosen, now)
        self._end(self._engines[chosen].accept(plan, now))

    def _end(self, ended: Sequence[Ended]) -> None:
        for each in ended:
            place = self._place_of.pop(each.request_id)
            self._num_ended += 1
            self._engines[self._kept.replica[place]].is_done_with(self._arrivals.plans[place])
            if self._kept.end(place, each):
                self._arrivals.answered(place, each.time)
                continue
            for child in self._arrivals.never_came(place):
                self._num_ended += 1
                self._kept.failures[child] = (Reason.PARENT_FAILED, "the request that it follows up failed")


@contextmanager
def _without_cycle_search() -> Iterator[None]:
    """A run makes millions of small objects and no cycles; looking for some takes a tenth of its time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _both(sink: EventSink | None, kept: list[Event]) -> EventSink:
    def take(replica: int, events: Sequence[Event]) -> None:
        kept.extend(events)
        if sink is not None:
            sink(replica, events)

    return take


def _counts(engines: Sequence[Replica]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for engine in engines:
        for name, count in engine.timer.outside_hull.items():
            counts[name] = counts.get(name, 0) + count
    return counts


def _hull_notes(engines: Sequence[Replica]) -> tuple[str, ...]:
    num_outside = sum(engine.timer.num_outside_hull for engine in engines)
    num_steps = sum(engine.num_steps for engine in engines)
    if not num_outside:
        return ()
    worst = ", ".join(f"{name} in {count}" for name, count in sorted(_counts(engines).items(), key=lambda it: -it[1]))
    return (
        f"{num_outside} of {num_steps} steps ({num_outside / num_steps:.1%}) were beyond what the cost was fitted to "
        f"({worst}): their times are guesses",
    )


def _target(cost: StepCost, settings: Sequence[tuple[str, str]], replicas: int, router: str) -> dict[str, str]:
    identity = cost.identity
    target: dict[str, Any] = {
        "server": "simulated",
        "model": identity.model,
        "cost": f"{identity.kind.value}: {identity.description or identity.machine}",
        "machine": identity.machine,
    }
    for quality in cost.qualities:
        if quality.mape is not None and quality.bias is not None:
            target[f"cost on {quality.held_out}"] = f"off by {quality.mape:.1%} a step, {quality.bias:+.2%} in all"
    target["replicas"] = f"{replicas}, {router}" if replicas > 1 else "1"
    return {**target, **dict(settings)}
