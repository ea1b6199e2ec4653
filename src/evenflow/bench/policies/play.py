"""Engines in this process play a load: no threads, no transport, nobody else.

`play` is one engine against the wall clock; requests come in between steps, as in the engine's own loop. Where all the
work is there from the beginning, the time that other engines take between two steps of this one does not matter to it,
and `play_in_turns` lets several run step by step: whoever has given the fewest tokens is next. A neighbour that takes
the machine for some seconds then slows all of them alike, which back-to-back runs would not.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from evenflow.core.events import Event, StepRecord
from evenflow.core.policy.spec import PolicySpec
from evenflow.core.request import Request
from evenflow.engine.build import LoadedModel, assemble, give_memory
from evenflow.engine.config import EngineConfig
from evenflow.engine.core import EngineCore
from evenflow.engine.messages import Add


@dataclass(frozen=True, slots=True)
class Played:
    """`seconds` that it took, without other engines' turns, and `processor_seconds` of this process, all threads, which
    other processes hardly change. Times of events are on the machine's clock."""

    events: tuple[Event, ...]
    seconds: float
    processor_seconds: float

    def tokens_until(self, seconds: float) -> int:
        """Tokens that steps of the first so many seconds fed."""
        steps = [event for event in self.events if isinstance(event, StepRecord)]
        end = steps[0].start + seconds
        return sum(step.prefill_tokens + step.decode_tokens for step in steps if step.end <= end)


def engine_on(model: LoadedModel, config: EngineConfig, policy: PolicySpec) -> EngineCore:
    resolved, executor = give_memory(config, model)
    return assemble(resolved, executor, policy=policy)


def play(core: EngineCore, load: Sequence[Request]) -> Played:
    """Until every request has ended. Arrival times count from the beginning; the ids must be new to the engine."""
    waiting = sorted(load, key=lambda request: request.arrival_time)[::-1]
    events: list[Event] = []
    begin, begin_processor = time.monotonic(), time.process_time()
    while waiting or core.has_work:
        now = time.monotonic() - begin
        while waiting and waiting[-1].arrival_time <= now:
            request = waiting.pop()
            core.accept(Add(replace(request, arrival_time=begin + request.arrival_time)))
        if core.has_work:
            events += core.step().events
        elif waiting:
            time.sleep(max(0.0, waiting[-1].arrival_time - (time.monotonic() - begin)))
    return Played(tuple(events), time.monotonic() - begin, time.process_time() - begin_processor)


def play_in_turns(
    engines: Mapping[str, EngineCore],
    load: Sequence[Request],
    *,
    after_step: Mapping[str, Callable[[Sequence[Event]], None]] = MappingProxyType({}),
) -> dict[str, Played]:
    """Each engine plays the whole load, which has arrived when it begins. `after_step` is part of the step's time."""
    now = time.monotonic()
    for core in engines.values():
        for request in load:
            core.accept(Add(replace(request, arrival_time=now)))
    events: dict[str, list[Event]] = {name: [] for name in engines}
    seconds, processor_seconds = dict.fromkeys(engines, 0.0), dict.fromkeys(engines, 0.0)
    given = dict.fromkeys(engines, 0)
    busy = set(engines)
    while busy:
        name = min(sorted(busy), key=given.__getitem__)
        began, began_processor = time.perf_counter(), time.process_time()
        result = engines[name].step()
        if name in after_step:
            after_step[name](result.events)
        seconds[name] += time.perf_counter() - began
        processor_seconds[name] += time.process_time() - began_processor
        events[name] += result.events
        given[name] += len(result.outputs)
        if not engines[name].has_work:
            busy.remove(name)
    return {name: Played(tuple(events[name]), seconds[name], processor_seconds[name]) for name in engines}
