"""What a simulation gives: the same result as a replay, made of what it kept when somebody asks for it."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version

import numpy as np

from evenflow.core.events import Event
from evenflow.core.request import FinishReason
from evenflow.replay.record import Record
from evenflow.replay.request import PlannedRequest, Reason, TokenCounts
from evenflow.replay.result import Result
from evenflow.simulate.replica import Ended, Replica

NO_DATE = "simulated"
MANY_GUESSES = 0.05
"""Of a simulation's steps."""


class Kept:
    """Every request's end, in columns: a few numbers each, however long its answer was."""

    def __init__(self, num_requests: int) -> None:
        self.replica = array("i", [-1]) * num_requests
        self.sent = array("d", [float("nan")]) * num_requests
        self.finished = array("d", [float("nan")]) * num_requests
        self.cached = array("i", [0]) * num_requests
        self._first_step = array("i", [-1]) * num_requests
        self._last_step = array("i", [-1]) * num_requests
        self._more_runs: dict[int, tuple[int, ...]] = {}
        self.failures: dict[int, tuple[Reason, str]] = {}

    def send(self, place: int, replica: int, time: float) -> None:
        self.replica[place] = replica
        self.sent[place] = time

    def end(self, place: int, ended: Ended) -> bool:
        """Whether it was answered to its end."""
        self.cached[place] = ended.num_cached_tokens
        if ended.runs:
            self._first_step[place], self._last_step[place] = ended.runs[:2]
            if len(ended.runs) > 2:
                self._more_runs[place] = ended.runs
        if ended.refusal is not None:
            self.failures[place] = (Reason.HTTP, ended.refusal.message)
            return False
        assert ended.finished is not None
        if ended.finished.reason not in (FinishReason.STOP, FinishReason.LENGTH):
            said = f"the engine ended it: {ended.finished.reason.value}"
            self.failures[place] = (Reason.HTTP if not ended.runs else Reason.SERVER_ERROR, said)
            return False
        self.finished[place] = ended.time
        return True

    def runs(self, place: int) -> tuple[int, ...]:
        if self._first_step[place] < 0:
            return ()
        return self._more_runs.get(place, (self._first_step[place], self._last_step[place]))


@dataclass(frozen=True, eq=False)
class Simulation:
    """`seconds` is how long it took here, `machine_seconds` the time that the simulated machines were in use: from the
    first arrival to the last end, for each replica. `outside_hull` counts steps by the feature that was beyond what the
    cost was fitted to, and the last of the `notes` tells of them if there were any; `events` are there if they were to
    be kept."""

    name: str
    plans: Sequence[PlannedRequest]
    num_steps: int
    num_leapt_steps: int
    num_preemptions: int
    seconds: float
    span_seconds: float
    machine_seconds: float
    outside_hull: Mapping[str, int]
    num_steps_outside_hull: int
    target: Mapping[str, str]
    load: Mapping[str, str]
    notes: tuple[str, ...]
    events: tuple[Event, ...] = field(repr=False)
    kept: Kept = field(repr=False)
    replicas: tuple[Replica, ...] = field(repr=False)
    slo: str | None = None
    warm_up_seconds: float | None = None

    @cached_property
    def result(self) -> Result:
        """What `evenflow replay` would have written, had this been live. Where guesses are many, that is a caution."""
        guessed = self.num_steps_outside_hull > MANY_GUESSES * self.num_steps
        notes, cautions = (self.notes[:-1], self.notes[-1:]) if guessed else (self.notes, ())
        return Result(
            name=self.name,
            began=NO_DATE,
            version=version("evenflow"),
            target=self.target,
            load=self.load,
            notes=notes,
            cautions=cautions,
            open_loop=True,
            warm_up_seconds=self.warm_up_seconds,
            slo=self.slo,
            loop_lags=(),
            gave_up=None,
            records=tuple(self._records()),
        )

    def _records(self) -> Iterator[Record]:
        ends = [np.round(np.frombuffer(replica.streams.step_ends), 6) for replica in self.replicas]
        for place, plan in enumerate(self.plans):
            number = self.kept.replica[place]
            runs = self.kept.runs(place)
            times: array[float] = array("d")
            for first, last in zip(runs[::2], runs[1::2], strict=True):
                times.frombytes(ends[number][first : last + 1].tobytes())
            yield self._record(place, plan, times)

    def _record(self, place: int, plan: PlannedRequest, times: "array[float]") -> Record:
        kept = self.kept
        sent, finished = round(kept.sent[place], 6), round(kept.finished[place], 6)
        was_sent, has_finished = sent == sent, finished == finished  # not a number: it never was
        reason, detail = kept.failures.get(place, (None, None))
        return Record(
            request_id=plan.request_id,
            intended=round(plan.send_at, 6),
            allowed=sent if was_sent else None,
            sent=sent if was_sent else None,
            finished=finished if has_finished else None,
            num_prompt_tokens=plan.num_prompt_tokens,
            max_tokens=plan.max_tokens,
            num_output_tokens=len(times) if has_finished else None,
            server_prompt_tokens=plan.num_prompt_tokens if has_finished else None,
            cached_tokens=kept.cached[place] if has_finished else None,
            service_class=plan.service_class,
            tenant=plan.tenant,
            reason=reason,
            detail=detail,
            token_counts=TokenCounts.REPORTED if has_finished else None,
            chunk_times=times,
            chunk_tokens=array("B", b"\x01") * len(times),
        )
