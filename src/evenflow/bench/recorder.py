"""What a front does with the events of a step, with a stopwatch; and the same again, for events that were recorded.

Fed again in a loop everything that recording needs is in the caches. Between two steps of a model it is not: the
weights have gone through them. So recorded events are fed in both ways, and the difference is the price of cold caches.
What the engine has just made is warm either way, so a step's events are made again, of the names and tuples of the old.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from evenflow.core.events import Event, StepRecord
from evenflow.observe.fold import SpanFold
from evenflow.observe.log import EventLogWriter
from evenflow.observe.metrics import Metrics
from evenflow.server.observing import Observer

_SWEPT_BYTES: Final = 32 * 2**20


class Recorder:
    """The log and all folds. `log_seconds` and `folds_seconds` are what they took so far, by the stopwatch."""

    def __init__(
        self, path: Path, *, flush_seconds: float = 1.0, stopwatch: Callable[[], float] = time.perf_counter
    ) -> None:
        self._stopwatch = stopwatch
        spans = SpanFold()
        self.log = EventLogWriter(path, flush_seconds=flush_seconds)
        self._observer = Observer(spans=spans, metrics=Metrics("bench", spans=spans))
        self.log_seconds = 0.0
        self.folds_seconds = 0.0

    @property
    def seconds(self) -> float:
        return self.log_seconds + self.folds_seconds

    def take(self, events: Sequence[Event]) -> None:
        began = self._stopwatch()
        self.log.write(events)
        written = self._stopwatch()
        self._observer.feed(events)
        self.log_seconds += written - began
        self.folds_seconds += self._stopwatch() - written

    def settle(self) -> None:
        """What was put off is a part of the cost."""
        began = self._stopwatch()
        self.log.flush()
        written = self._stopwatch()
        self._observer.settle()
        self.log_seconds += written - began
        self.folds_seconds += self._stopwatch() - written


def by_step(events: Iterable[Event]) -> list[tuple[Event, ...]]:
    """As an engine hands them over: a step's record comes last. What follows the last record is left out."""
    steps, step = [], list[Event]()
    for event in events:
        step.append(event)
        if isinstance(event, StepRecord):
            steps.append(tuple(step))
            step.clear()
    return steps


def replayed(
    steps: Sequence[Sequence[Event]], log: Path, *, goes: int, cold: bool = False, flush_seconds: float = 1.0
) -> tuple[float, float]:
    """Microseconds per step of the log and of the folds, the best go of some; `cold` empties the caches before each."""
    weights = np.ones(_SWEPT_BYTES // 8 if cold else 0)
    found = []
    for _ in range(goes):
        recorder = Recorder(log, flush_seconds=flush_seconds)
        with recorder.log:
            for step in steps:
                if cold:
                    weights.sum()
                    step = tuple([_made_again(event) for event in step])
                recorder.take(step)
            recorder.settle()
        found.append(recorder)
    best = min(found, key=lambda recorder: recorder.seconds)
    return 1e6 * best.log_seconds / len(steps), 1e6 * best.folds_seconds / len(steps)


def _made_again(event: Event) -> Event:
    """Equal, but of new numbers."""
    # ...: an event's class takes what its own fields hold.
    make: Callable[..., Event] = type(event)
    return make(*(value + 0.0 if isinstance(value, float) else value for value in event))
