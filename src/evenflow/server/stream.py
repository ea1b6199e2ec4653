"""Running a job: its sequences side by side, its answer whole or as server-sent events, until done or nobody listens.

The format of the answer is the endpoint's (`AnswerFormat`); here is what both have in common:

- Every generator is closed on every way out, and closing one aborts its request.
- The first delta is awaited before the first byte is sent, so what the engine refuses is still an HTTP error. After
  that byte, an error is an event and the stream ends without `[DONE]`.
- A slow reader makes `send` wait; only the sequences of that job wait with it.
- An answer that is whole is written in a thread if it is long: thousands of tokens with their log-probabilities take
  seconds, and everybody's tokens pass through the loop.
"""

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Mapping
from contextlib import aclosing, suppress
from typing import Any, Protocol, TypeVar

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from evenflow.core.errors import EvenflowError
from evenflow.core.request import Request
from evenflow.engine.api import Delta, Engine
from evenflow.server.encoding import Lanes
from evenflow.server.endings import check_ending
from evenflow.server.errors import Disconnected, error_body
from evenflow.server.jobs import Job, LiveJobs, UsageCount
from evenflow.server.replies import Usage

logger = logging.getLogger(__name__)

T = TypeVar("T")

DONE = b"data: [DONE]\n\n"
STREAM_HEADERS: Mapping[str, str] = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


class AnswerFormat(Protocol):
    """How an endpoint writes a job's answer. One per job; may remember what each sequence has had."""

    def events(self, index: int, delta: Delta) -> list[msgspec.Struct]:
        """The events for one delta; none if there is nothing to show yet."""
        ...

    def usage_event(self, usage: Usage) -> msgspec.Struct: ...

    def whole(self, deltas: list[Delta], usage: Usage) -> msgspec.Struct:
        """The answer, given everything that each sequence gave as one delta."""
        ...


def event(payload: msgspec.Struct) -> bytes:
    return b"data: " + msgspec.json.encode(payload) + b"\n\n"


class JobResponse(Response):
    """Runs the job when it is sent. Errors before the first byte are raised."""

    def __init__(self, job: Job, answer_format: AnswerFormat, engine: Engine, live: LiveJobs, lanes: Lanes) -> None:
        super().__init__()
        self._job = job
        self._format = answer_format
        self._engine = engine
        self._live = live
        self._lanes = lanes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._stream if self._job.stream else self._whole
        # After a disconnect, nobody is left to be told.
        with self._live.hold(self._job.call.request_id), suppress(Disconnected):
            await unless_disconnected(receive, answer(scope, receive, send))

    async def _whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        usage = UsageCount(self._job)

        async def collect(index: int, request: Request) -> Delta:
            delta = await self._engine.complete(request, self._job.options)
            check_ending(delta)
            usage.add(index, delta)
            return delta

        merged = await all_of([collect(index, request) for index, request in enumerate(self._job.requests)])
        body = await self._lanes.run(
            sum(map(num_items, merged)), lambda: msgspec.json.encode(self._format.whole(merged, usage.usage()))
        )
        await Response(body, media_type="application/json")(scope, receive, send)

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        usage = UsageCount(self._job)
        events = EventSender(send)

        async def relay(index: int, request: Request) -> None:
            async with aclosing(self._engine.generate(request, self._job.options)) as deltas:
                async for delta in deltas:
                    check_ending(delta)
                    usage.add(index, delta)
                    payloads = self._format.events(index, delta)
                    if payloads:
                        await events.send(b"".join(map(event, payloads)))

        try:
            await all_of([relay(index, request) for index, request in enumerate(self._job.requests)])
        except Exception as error:
            if not events.begun:
                raise
            if not isinstance(error, EvenflowError):
                logger.exception("a stream failed")
            await events.end(event(error_body(error)))
            return
        last = event(self._format.usage_event(usage.usage())) if self._job.include_usage else b""
        await events.end(last + DONE)


def num_items(delta: Delta) -> int:
    """How much there is to write: tokens, and log-probabilities of them."""
    logprobs = sum(1 + len(entry.top) for entry in (*delta.logprobs, *delta.prompt_logprobs))
    return len(delta.token_ids) + logprobs


class EventSender:
    """Sends server-sent events to one client; the response begins with the first of them."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._turn = asyncio.Lock()
        self.begun = False

    async def send(self, events: bytes) -> None:
        await self._write(events, more=True)

    async def end(self, events: bytes) -> None:
        await self._write(events, more=False)

    async def _write(self, events: bytes, *, more: bool) -> None:
        # Sequences of one job share the connection, and ASGI does not say that `send` may run twice at a time.
        async with self._turn:
            if not self.begun:
                self.begun = True
                headers = [(name.encode(), value.encode()) for name, value in STREAM_HEADERS.items()]
                await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._send({"type": "http.response.body", "body": events, "more_body": more})


async def all_of(works: list[Coroutine[Any, Any, T]]) -> list[T]:  # Any: what a coroutine sends and is sent
    """What each gives. The first to fail ends the others, and its error is raised once they have ended."""
    if len(works) == 1:
        return [await works[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except BaseExceptionGroup as failed:
        raise first_of(failed) from None
    return [task.result() for task in tasks]


async def unless_disconnected(receive: Receive, work: Awaitable[T]) -> T:
    """What `work` gives; if the client goes away first, `work` is cancelled and `Disconnected` raised."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        raise Disconnected

    try:
        async with asyncio.TaskGroup() as group:
            watcher = group.create_task(watch())
            result = await work
            watcher.cancel()
    except BaseExceptionGroup as failed:
        raise first_of(failed) from None
    return result


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
