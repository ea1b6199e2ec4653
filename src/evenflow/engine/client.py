"""The front's side of an engine: many streams of text on one event loop, joined to one engine loop by a `Link`.

A link only carries: commands there, step results back, and the news that the other side died. It may lead to a process
(child.py) or to a thread (thread.py); everything that a stream promises is here and so is the same for both.

    generate ---Add---> engine      a result wakes the loop once; each stream in it turns its tokens into text at once
    stream  <--tokens-- engine      (so a stop string is seen, and the request freed, however slowly the stream is
            ---Abort--> engine      read) and wakes its reader once, who gets all that has gathered.

An id stays taken until the engine has said its last word on it, so nothing meant for an old request reaches a new one.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from evenflow.core.errors import DuplicateRequest, EngineDead, EngineUnavailable, InvalidRequest, PolicyError
from evenflow.core.events import Event
from evenflow.core.plan import RequestOutput
from evenflow.core.request import FinishReason, Request, RequestId
from evenflow.engine.api import Delta, EngineFacts, EngineState, PolicyView, TextOptions
from evenflow.engine.messages import Abort, Add, AskPolicy, Command, PolicyAnswer, StepResult
from evenflow.engine.stream import Stream
from evenflow.engine.text import TokenText
from evenflow.engine.transport import TransportError


class Link(Protocol):
    """The way to an engine loop. Its coroutines and callbacks belong to the event loop that called `start`."""

    async def start(self, deliver: Callable[[StepResult], None], died: Callable[[str], None]) -> EngineFacts:
        """Start the engine; returns when it accepts requests. `died` is called at most once, and not after `stop`.

        Raises what building the engine raised: ConfigError, ModelError, or EngineUnavailable with the reason.
        """
        ...

    def send(self, command: Command) -> None:
        """Never blocks; goes nowhere if the engine is gone. Raises TransportError for what cannot be sent."""
        ...

    async def stop(self) -> None:
        """End the engine and whatever it runs, and return when it is gone. May be called in any state."""
        ...


class EngineClient:
    """An `Engine` (engine/api.py) at the other end of `link`.

    `lost` is told why, and how many open streams it took with it, if the engine ends by itself: nobody may be there to
    be told but the log.
    """

    def __init__(
        self, link: Link, tokenizer: TokenText, *, lost: Callable[[str, int], None] = lambda reason, streams: None
    ) -> None:
        self._link = link
        self._lost = lost
        self._tokenizer = tokenizer
        self._state = EngineState.STARTING
        self._death_reason: str | None = None
        self._facts: EngineFacts | None = None
        self._streams: dict[RequestId, Stream] = {}
        self._leaving: set[RequestId] = set()  # aborted here, not yet confirmed there
        self._idle = asyncio.Event()  # no stream is open
        self._idle.set()
        self._questions: dict[int, asyncio.Future[PolicyAnswer]] = {}
        self._num_asked = 0
        self._sinks: list[Callable[[Sequence[Event]], None]] = []

    @property
    def state(self) -> EngineState:
        return self._state

    @property
    def death_reason(self) -> str | None:
        return self._death_reason

    @property
    def facts(self) -> EngineFacts:
        assert self._facts is not None, "start() has not returned"
        return self._facts

    @property
    def num_streams(self) -> int:
        """Streams that are open; one per sequence."""
        return len(self._streams)

    def subscribe(self, sink: Callable[[Sequence[Event]], None]) -> None:
        self._sinks.append(sink)

    # ---- life ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        try:
            self._facts = await self._link.start(self._deliver, self._die_by_itself)
        except BaseException as error:
            self._die(f"the engine did not start: {error}")
            raise
        if self._state is EngineState.STARTING:
            self._state = EngineState.READY

    async def drain(self, timeout_seconds: float) -> None:
        if self._state is EngineState.DEAD:
            return
        self._state = EngineState.DRAINING
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._idle.wait()
        for request_id, stream in tuple(self._streams.items()):
            stream.advance(RequestOutput(request_id, (), FinishReason.ABORT))
            self._leave(request_id, FinishReason.ABORT)

    async def stop(self) -> None:
        self._die("the engine was stopped")
        await self._link.stop()

    def _die_by_itself(self, reason: str) -> None:
        if self._state is EngineState.DEAD:
            return
        num_streams = len(self._streams)
        self._die(reason)
        self._lost(reason, num_streams)

    def _die(self, reason: str) -> None:
        if self._state is EngineState.DEAD:
            return
        self._state = EngineState.DEAD
        self._death_reason = reason
        for stream in self._streams.values():
            stream.fail(EngineDead(reason))
        self._streams.clear()
        self._leaving.clear()
        self._idle.set()
        for question in self._questions.values():
            if not question.done():
                question.set_exception(EngineDead(reason))

    def _unavailable(self, so: str = "") -> EngineUnavailable:
        if self._death_reason is not None:
            return EngineDead(self._death_reason + so)
        return EngineUnavailable(f"the engine is {self._state.value}{so}")

    # ---- policy ----------------------------------------------------------------------------------------------------

    async def policy(self, change: Mapping[str, object] | None = None) -> PolicyView:
        if self._state not in (EngineState.READY, EngineState.DRAINING):
            raise self._unavailable()
        number = self._num_asked = self._num_asked + 1
        question: asyncio.Future[PolicyAnswer] = asyncio.get_running_loop().create_future()
        self._questions[number] = question
        try:
            self._link.send(AskPolicy(number, None if change is None else json.dumps(change).encode()))
            answer = await question
        finally:
            del self._questions[number]
        if answer.problems:
            raise PolicyError(answer.problems)
        return answer.policy

    # ---- requests --------------------------------------------------------------------------------------------------

    async def generate(self, request: Request, options: TextOptions) -> AsyncGenerator[Delta, None]:
        stream = self._open(request, options)
        try:
            while True:
                delta = await stream.read()
                yield delta
                if delta.finish_reason is not None:
                    return
        finally:
            self._close(stream)

    async def complete(self, request: Request, options: TextOptions) -> Delta:
        """All of one completion as one delta: the reader is woken once, not once per step."""
        stream = self._open(request, options)
        try:
            return await stream.read_all()
        finally:
            self._close(stream)

    def _open(self, request: Request, options: TextOptions) -> Stream:
        if self._state is not EngineState.READY:
            raise self._unavailable("; it takes no requests")
        if request.id in self._streams or request.id in self._leaving:
            raise DuplicateRequest(f"request id {request.id!r} is already in use; send a new id", param="request_id")
        stream = Stream(self._tokenizer, request, options)
        try:
            self._link.send(Add(request))
        except TransportError as error:
            raise InvalidRequest(f"the request holds something that cannot be passed on: {error}") from error
        self._streams[request.id] = stream
        self._idle.clear()
        return stream

    def _close(self, stream: Stream) -> None:
        if self._streams.get(stream.request_id) is stream:
            self._leave(stream.request_id, FinishReason.ABORT)

    def _leave(self, request_id: RequestId, reason: FinishReason) -> None:
        """Free the request in the engine; its id is free again when the engine says so."""
        self._forget(request_id)
        self._leaving.add(request_id)
        self._link.send(Abort(request_id, reason))

    def _forget(self, request_id: RequestId) -> None:
        del self._streams[request_id]
        if not self._streams:
            self._idle.set()

    # ---- results ---------------------------------------------------------------------------------------------------

    def _deliver(self, result: StepResult) -> None:
        for output in result.outputs:
            self._pass_on(output)
        for refusal in result.refusals:
            stream = self._streams.get(refusal.request_id)
            if stream is not None:
                stream.fail(refusal.to_error())
                self._forget(refusal.request_id)
            self._leaving.discard(refusal.request_id)
        for answer in result.answers:
            question = self._questions.get(answer.number)
            if question is not None and not question.done():
                question.set_result(answer)
        if result.events:
            loop = asyncio.get_running_loop()
            for sink in self._sinks:
                loop.call_soon(sink, result.events)  # apart from the streams, so that one that raises harms none

    def _pass_on(self, output: RequestOutput) -> None:
        request_id = output.request_id
        stream = self._streams.get(request_id)
        if stream is None:
            if output.finish_reason is not None:
                self._leaving.discard(request_id)
            return
        reason = stream.advance(output)
        if output.finish_reason is not None:
            self._forget(request_id)
        elif reason is not None:  # ended here and not there: by a stop string, or its text could not be made
            self._leave(request_id, reason)
