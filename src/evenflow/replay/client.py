"""A load run: every planned request is sent at its time, its answer read as it comes, and nothing is left unsaid.

One thread, one event loop. Between two sends, the next request's bytes are written ahead, so that at its time only one
write to a socket is left to do. The garbage collector rests during the run: a full collection takes longer than the
lag that is allowed. All requests are accounted for at the end: each has finished well, failed for a reason, or was not
sent.
"""

import asyncio
import gc
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from evenflow.replay.connection import ConnectionPool
from evenflow.replay.exchange import Exchange
from evenflow.replay.file_limit import raise_file_limit
from evenflow.replay.pacing import ClosedLoop, OpenLoop, Pacing, Patience
from evenflow.replay.punctual import punctual
from evenflow.replay.request import Failure, ObservedRequest, PlannedRequest, Reason
from evenflow.replay.target import Prompts, RequestWriter, Target
from evenflow.replay.watch import Progress, Watcher, nobody_watches, paint

# From when everything is ready until the first intended send.
START_SECONDS = 0.02
INTERRUPTED = "the run was interrupted"
_SWEEP_SECONDS = 0.25
_HEARTBEAT_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Outcome:
    """`loop_lags` says how late the loop itself was at regular instants: all time stamps may be off by that.

    `start` is t0 on the loop's clock. `gave_up` says why sending stopped early, if it did.
    """

    observed: Sequence[ObservedRequest]
    start: float
    end: float
    loop_lags: Sequence[float]
    num_connections: int
    gave_up: str | None


async def run_load(
    target: Target,
    plans: Sequence[PlannedRequest],
    prompts: Prompts,
    *,
    pacing: Pacing = OpenLoop(),
    patience: Patience = Patience(),
    watch: Watcher = nobody_watches,
) -> Outcome:
    """Returns when every request has ended. `watch` is called twice a second, when there is time for it.

    Being cancelled stops the run; what has been seen until then is still returned.
    """
    raise_file_limit()
    with _no_collections(), punctual():
        return await _LoadRun(target, plans, prompts, patience, watch).run(pacing)


@contextmanager
def _no_collections() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _LoadRun:
    def __init__(
        self,
        target: Target,
        plans: Sequence[PlannedRequest],
        prompts: Prompts,
        patience: Patience,
        watch: Watcher,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._pool = ConnectionPool(target.address, self._loop)
        self._writer = RequestWriter(target, prompts)
        self._patience = patience
        self._watch = watch
        start = self._loop.time() + START_SECONDS
        observed = [ObservedRequest(plan, start + plan.send_at) for plan in sorted(plans, key=lambda p: p.send_at)]
        self._progress = Progress(observed, start, next_due=start)
        self._by_name = {request.plan.name: request for request in observed if request.plan.name is not None}
        self._in_flight: dict[ObservedRequest, Exchange] = {}
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._ends: dict[ObservedRequest, asyncio.Future[None]] = {}
        self._places: asyncio.Semaphore | None = None
        self._senders: asyncio.Task[None] | None = None
        self._refused_in_a_row = 0
        self._gave_up: str | None = None
        self._loop_lags = array("d")

    async def run(self, pacing: Pacing) -> Outcome:
        progress = self._progress
        self._senders = self._loop.create_task(self._send_all(pacing))
        timers = [
            self._loop.create_task(timer) for timer in (self._sweep(), self._beat(), paint(progress, self._watch))
        ]
        try:
            await asyncio.wait([self._senders])
            if not self._senders.cancelled():
                self._senders.result()
            await self._quiet.wait()
        except asyncio.CancelledError:
            self._interrupt()
        finally:
            for task in (*timers, self._senders):
                task.cancel()
            await asyncio.gather(*timers, self._senders, return_exceptions=True)
            self._pool.close()
        end = self._loop.time()
        progress.next_due = None
        self._watch(progress, end)
        return Outcome(progress.observed, progress.start, end, self._loop_lags, self._pool.num_opened, self._gave_up)

    # ---- when to send

    async def _send_all(self, pacing: Pacing) -> None:
        """Returns when there is nothing more to send; is cancelled when nothing more is to be sent."""
        async with asyncio.TaskGroup() as group:
            match pacing:
                case OpenLoop():
                    await self._open_loop(pacing, group)
                case ClosedLoop():
                    await self._until(self._progress.start)
                    requests = iter(self._progress.observed)
                    # Who would find nothing left to ask need not come.
                    for _ in range(min(pacing.num_users, len(self._progress.observed))):
                        group.create_task(self._user(pacing, requests))
        self._progress.next_due = None

    async def _open_loop(self, pacing: OpenLoop, group: asyncio.TaskGroup) -> None:
        if pacing.most_in_flight is not None:
            self._places = asyncio.Semaphore(pacing.most_in_flight)
        held_back = 0.0
        for request in self._progress.observed:
            due = self._progress.next_due = request.intended + held_back
            written = self._writer.write(request.plan)
            await self._until(due)
            parent = self._parent_of(request)
            if parent is not None and parent.finished is None:
                group.create_task(self._send_after(parent, request, written))
                continue
            request.allowed = due
            if self._places is not None:
                if self._places.locked():
                    reached = self._loop.time()
                    await self._places.acquire()
                    request.allowed = due + self._loop.time() - reached
                    held_back = request.allowed - request.intended
                else:
                    await self._places.acquire()
            self._send(request, written)

    async def _send_after(self, parent: ObservedRequest, request: ObservedRequest, written: bytes) -> None:
        """A follow-up is intended for when its parent's answer is there, as a person would send it."""
        await self._ended(parent)
        request.intended = self._loop.time()
        if self._places is not None:
            await self._places.acquire()
        request.allowed = self._loop.time()
        self._send(request, written)

    async def _user(self, pacing: ClosedLoop, requests: Iterator[ObservedRequest]) -> None:
        end = float("inf") if pacing.seconds is None else self._progress.start + pacing.seconds
        for request in requests:
            if self._loop.time() >= end:
                return
            written = self._writer.write(request.plan)
            parent = self._parent_of(request)
            if parent is not None:
                await self._ended(parent)
            request.intended = request.allowed = self._loop.time()
            self._send(request, written)
            await self._ended(request)
            if pacing.think_seconds:
                await self._until(self._loop.time() + pacing.think_seconds)

    def _parent_of(self, request: ObservedRequest) -> ObservedRequest | None:
        """None also if the parent is not in this load, or comes later: it cannot be waited for then."""
        parent = self._by_name.get(request.plan.parent) if request.plan.parent is not None else None
        return parent if parent is not None and parent.plan.send_at <= request.plan.send_at else None

    async def _until(self, instant: float) -> None:
        # Also when late: answers must be read between sends.
        await asyncio.sleep(max(0.0, instant - self._loop.time()))

    async def _ended(self, request: ObservedRequest) -> None:
        if request.finished is None:
            await asyncio.shield(self._ends.setdefault(request, self._loop.create_future()))

    # ---- one request

    def _send(self, request: ObservedRequest, written: bytes) -> None:
        now = self._loop.time()
        parent = self._parent_of(request)
        if parent is not None and parent.failure is not None:
            request.failure = Failure(Reason.PARENT_FAILED, f"it follows {parent.plan.request_id}, which failed")
            self._note_end(request, now)
            return
        exchange = Exchange(request, written, self._pool, self._note_answer)
        self._in_flight[request] = exchange
        self._quiet.clear()
        self._progress.num_sent += 1
        exchange.send(now)

    def _note_answer(self, exchange: Exchange) -> None:
        request, progress = exchange.observed, self._progress
        del self._in_flight[request]
        if request.failure is None:
            progress.num_done += 1
            progress.num_tokens += request.num_output_tokens or 0
        else:
            progress.num_failed += 1
        assert request.finished is not None
        self._note_end(request, request.finished)
        self._note_refusal(request)
        if not self._in_flight:
            self._quiet.set()

    def _note_end(self, request: ObservedRequest, now: float) -> None:
        request.finished = now
        if self._places is not None:
            self._places.release()
        if (end := self._ends.pop(request, None)) is not None:
            end.set_result(None)

    def _note_refusal(self, request: ObservedRequest) -> None:
        if request.failure is None or request.failure.reason is not Reason.CONNECT:
            self._refused_in_a_row = 0
            return
        self._refused_in_a_row += 1
        if self._refused_in_a_row >= self._patience.connects_in_a_row and self._gave_up is None:
            self._gave_up = f"the server is gone: {self._refused_in_a_row} requests in a row got no connection"
            assert self._senders is not None
            self._senders.cancel()

    # ---- time passing

    async def _sweep(self) -> None:
        """Gives up what has been silent for too long."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = self._loop.time()
            for exchange in list(self._in_flight.values()):
                failure = exchange.overdue(self._patience, now)
                if failure is not None:
                    exchange.give_up(failure, now)

    async def _beat(self) -> None:
        while True:
            due = self._loop.time() + _HEARTBEAT_SECONDS
            await asyncio.sleep(_HEARTBEAT_SECONDS)
            self._loop_lags.append(self._loop.time() - due)

    def _interrupt(self) -> None:
        self._gave_up = INTERRUPTED
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
        now = self._loop.time()
        for exchange in list(self._in_flight.values()):
            exchange.give_up(Failure(Reason.INTERRUPTED, "the run ended before the answer was complete"), now)
