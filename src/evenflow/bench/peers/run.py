"""The whole comparison: who takes part is started one after the other, and then they take turns, workload by workload.

offline stage   w1, w2, long, context    piped where the engine has a Python interface, else served
online stage    w3                       servers; the rates are shares of the best peer's rate in w1
"""

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from evenflow.bench.peers.contenders import Contender, LeftOut, Workload
from evenflow.bench.peers.engines import Batch, Engine, Limits, SingleStream
from evenflow.bench.peers.figures import (
    Entry,
    Latency,
    Results,
    Throughput,
    best_peer_rate,
    decode_step,
    middle,
)
from evenflow.bench.peers.machine import this_machine
from evenflow.bench.peers.piped import PipedEngine
from evenflow.bench.peers.served import ServedEngine
from evenflow.bench.peers.turns import Field
from evenflow.bench.peers.workloads import Work
from evenflow.core.errors import ConfigError
from evenflow.replay.request import ObservedRequest
from evenflow.workload.peer_format import PeerRequest

R = TypeVar("R")
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """`cpus` are the cores for everybody, one thread each. `peak_rate` replaces what w1 would find."""

    workloads: frozenset[Workload]
    rounds: int
    cpus: tuple[int, ...]
    rates: tuple[float, ...]
    peak_rate: float | None
    limits: Limits
    quick: bool

    def __post_init__(self) -> None:
        if Workload.W3 in self.workloads and Workload.W1 not in self.workloads and self.peak_rate is None:
            raise ConfigError("w3 runs at shares of the best peer's rate in w1: choose w1 as well, or give peak_rate")


def compare(
    contenders: Sequence[Contender],
    left_out: Sequence[LeftOut],
    work: Work,
    settings: Settings,
    progress: Progress,
) -> Results:
    """Children inherit the cores that they may run on."""
    entries = {each.name: Entry(each.name, each.engine, each.precision, each.most_requests) for each in contenders}
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, settings.cpus)
    try:
        with tempfile.TemporaryDirectory(prefix="evenflow-peers-") as folder:
            _Offline(contenders, entries, work, settings, progress, Path(folder)).run()
            peak_rate = settings.peak_rate or best_peer_rate(tuple(entries.values()))
            if Workload.W3 in settings.workloads:
                _Online(contenders, entries, work, settings, progress, Path(folder)).run(peak_rate)
    finally:
        os.sched_setaffinity(0, before)
    return Results(
        machine=this_machine(),
        rounds=settings.rounds,
        threads=len(settings.cpus),
        quick=settings.quick,
        entries=tuple(entries.values()),
        left_out=tuple(left_out),
        peak_rate=peak_rate,
    )


class _Stage:
    def __init__(
        self,
        contenders: Sequence[Contender],
        entries: dict[str, Entry],
        work: Work,
        settings: Settings,
        progress: Progress,
        folder: Path,
    ) -> None:
        self._contenders = contenders
        self._entries = entries
        self._work = work
        self._settings = settings
        self._progress = progress
        self._folder = folder

    def _taking_part(self, *workloads: Workload) -> list[Contender]:
        wanted = self._settings.workloads.intersection(workloads)
        return [contender for contender in self._contenders if contender.workloads & wanted]

    def _place(self, name: str, stage: str) -> Path:
        place = self._folder / f"{name}-{stage}"
        place.mkdir()
        return place

    def _told(self, workload: Workload) -> Callable[[str, int], None]:
        return lambda name, index: self._progress(
            f"{workload.value}, round {index + 1} of {self._settings.rounds}: {name}"
        )

    def _serve(self, contender: Contender, stage: str) -> ServedEngine:
        assert contender.served is not None
        place = self._place(contender.name, stage)
        return ServedEngine(contender.served, contender.ready, place, self._settings.limits)

    def _warm_up_server(self, contender: Contender, engine: ServedEngine) -> None:
        engine.batch(self._work.warm_up)
        if contender.pin_server_threads:
            engine.pin_threads(self._settings.cpus)

    def _note(self, field: Field[Engine] | Field[ServedEngine]) -> None:
        for name, failure in field.failures.items():
            self._entries[name].failure = failure
            self._progress(f"{name} failed: {failure}")
        for name, share in field.others.items():
            self._entries[name].others = max(share, self._entries[name].others or 0.0)


class _Offline(_Stage):
    def run(self) -> None:
        field: Field[Engine] = Field()
        try:
            for contender in self._taking_part(Workload.W1, Workload.W2, Workload.LONG, Workload.CONTEXT):
                self._start(field, contender)
            self._w1(field)
            self._w2(field)
            self._long(field)
            self._context(field)
        finally:
            field.end()
            self._note(field)

    def _start(self, field: Field[Engine], contender: Contender) -> None:
        self._progress(f"starting {contender.name}")

        def start() -> Engine:
            if contender.piped is None:
                return self._serve(contender, "offline")
            return PipedEngine(contender.piped, self._place(contender.name, "offline"), self._settings.limits)

        def warm_up(engine: Engine) -> None:
            if isinstance(engine, ServedEngine):
                self._warm_up_server(contender, engine)
            else:
                engine.batch(self._work.warm_up)

        engine = field.enter(contender.name, start, warm_up)
        if engine is not None:
            entry = self._entries[contender.name]
            entry.version, entry.start_seconds = engine.version, engine.start_seconds

    def _w1(self, field: Field[Engine]) -> None:
        def measure(name: str, engine: Engine) -> tuple[Batch, float | None]:
            batch = engine.batch(self._requests(name))
            return batch, engine.floor_seconds(batch) if isinstance(engine, PipedEngine) and batch.steps else None

        for name, rounds in self._rounds(field, Workload.W1, measure).items():
            floors = [floor for _, floor in rounds if floor is not None]
            batches = [batch for batch, _ in rounds]
            self._entries[name].w1 = Throughput.of(len(self._requests(name)), batches, floors)

    def _requests(self, name: str) -> Sequence[PeerRequest]:
        return self._work.w1[: self._entries[name].first_requests]

    def _w2(self, field: Field[Engine]) -> None:
        def measure(name: str, engine: Engine) -> list[SingleStream]:
            return [engine.single(request) for request in self._work.w2]

        for name, rounds in self._rounds(field, Workload.W2, measure).items():
            self._entries[name].w2 = middle([stream for each in rounds for stream in each])

    def _long(self, field: Field[Engine]) -> None:
        def measure(name: str, engine: Engine) -> Batch:
            return engine.batch(self._work.long)

        for name, rounds in self._rounds(field, Workload.LONG, measure).items():
            self._entries[name].long = Throughput.of(len(self._work.long), rounds)

    def _context(self, field: Field[Engine]) -> None:
        def measure(name: str, engine: Engine) -> dict[int, Batch]:
            return {length: engine.batch(requests) for length, requests in self._work.contexts.items()}

        for name, rounds in self._rounds(field, Workload.CONTEXT, measure).items():
            times = []
            for length, requests in self._work.contexts.items():
                steps = [step for each in rounds for step in each[length].steps]
                times.append(decode_step(length, len(requests), steps))
            self._entries[name].context = tuple(time for time in times if time is not None)

    def _rounds(
        self, field: Field[Engine], workload: Workload, measure: Callable[[str, Engine], R]
    ) -> dict[str, list[R]]:
        names = [contender.name for contender in self._taking_part(workload)]
        return field.rounds(names, self._settings.rounds, measure, self._told(workload))


class _Online(_Stage):
    def run(self, peak_rate: float | None) -> None:
        contenders = self._taking_part(Workload.W3)
        if peak_rate is None:
            for contender in contenders:
                entry = self._entries[contender.name]
                entry.failure = entry.failure or "w3 needs the rate of a peer that ran all of w1, and none did"
            return
        field: Field[ServedEngine] = Field()
        try:
            for contender in contenders:
                self._start(field, contender)
            for share in self._settings.rates:
                self._measure(field, share, share * peak_rate)
        finally:
            field.end()
            self._note(field)

    def _start(self, field: Field[ServedEngine], contender: Contender) -> None:
        self._progress(f"starting the server of {contender.name}")
        engine = field.enter(
            contender.name,
            partial(self._serve, contender, "online"),
            partial(self._warm_up_server, contender),
        )
        if engine is not None:
            self._entries[contender.name].server_start_seconds = engine.start_seconds

    def _measure(self, field: Field[ServedEngine], share: float, rate: float) -> None:
        arrivals, now = [], 0.0
        for gap in self._work.unit_gaps:
            now += gap / rate
            arrivals.append(now)

        def measure(name: str, engine: ServedEngine) -> list[ObservedRequest]:
            return engine.load(self._work.w3, arrivals)

        rounds = field.rounds(tuple(field.engines), self._settings.rounds, measure, self._told(Workload.W3))
        for name, seen in rounds.items():
            self._entries[name].online[share] = Latency.of(rate, seen)
