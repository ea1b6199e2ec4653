"""A `Link` to an engine in a process of its own (process.py), over a Unix socket pair.

The child is told what to build in the first message, so nothing but a file descriptor is on its command line. It may be
launched before there is an event loop, so that it loads while the front does what else there is to do. The end
of the socket means that it is dead, however it died, and the event loop hears of that at once. It is in a process group
of its own, so an interrupt at the terminal reaches the front only.
"""

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import cast

from evenflow.core import errors
from evenflow.core.errors import EngineUnavailable, EvenflowError
from evenflow.engine.api import EngineFacts
from evenflow.engine.config import EngineConfig
from evenflow.engine.messages import Command, StepResult
from evenflow.engine.transport import Failed, FrameReader, Message, Ready, Start, TransportError, encode

ENGINE_COMMAND = (sys.executable, "-P", "-m", "evenflow.engine.process")  # -P: not from the working directory
START_TIMEOUT_SECONDS = 600.0
EXIT_TIMEOUT_SECONDS = 2.0


class _Receiver(asyncio.Protocol):
    """Socket bytes to messages. `lost` gets what was wrong with the bytes, None if the socket just ended."""

    def __init__(self, receive: Callable[[Message], None], lost: "asyncio.Future[str | None]") -> None:
        self._receive = receive
        self._lost = lost
        self._reader = FrameReader()
        self._transport: asyncio.WriteTransport | None = None
        self._broken: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's is one in what it does, not by class

    def data_received(self, data: bytes) -> None:
        try:
            messages = self._reader.feed(data)
        except TransportError as error:
            assert self._transport is not None
            self._broken = str(error)
            self._transport.abort()
            return
        for message in messages:
            self._receive(message)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._lost.done():
            self._lost.set_result(self._broken)


class ProcessLink:
    def __init__(
        self,
        config: EngineConfig,
        *,
        command: Sequence[str] = ENGINE_COMMAND,
        start_timeout_seconds: float = START_TIMEOUT_SECONDS,
        exit_timeout_seconds: float = EXIT_TIMEOUT_SECONDS,
    ) -> None:
        self._config = config
        self._command = command
        self._start_timeout_seconds = start_timeout_seconds
        self._exit_timeout_seconds = exit_timeout_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._burial: asyncio.Task[None] | None = None
        self._last_words: Failed | None = None
        self._stopping = False

    @property
    def pid(self) -> int:
        assert self._process is not None, "start() was not called"
        return self._process.pid

    def launch(self) -> None:
        """Have the child load while the caller, on the thread of the event loop to come, gets ready for `start`."""
        assert self._process is None, "a link starts once"
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = self._spawn(theirs)
        except BaseException:
            ours.close()
            raise
        self._sock = ours
        with suppress(ConnectionError):  # a child that is gone already is noticed by `start`
            ours.sendall(encode(Start(self._config)))  # far less than a socket takes: this does not wait

    def abandon(self) -> None:
        """For whoever launched and then could not go on. Does nothing where `start` took over, or nothing runs."""
        if self._sock is not None:
            assert self._process is not None
            self._sock.close()
            self._process.kill()
            self._process.wait()

    async def start(self, deliver: Callable[[StepResult], None], died: Callable[[str], None]) -> EngineFacts:
        assert self._transport is None, "a link starts once"
        ready: asyncio.Future[EngineFacts] = asyncio.get_running_loop().create_future()
        try:
            await self._open(ready, deliver, died)
            async with asyncio.timeout(self._start_timeout_seconds):
                return await ready
        except TimeoutError as error:
            await self.stop()
            raise EngineUnavailable(f"no answer within {self._start_timeout_seconds:g} seconds") from error
        except BaseException:
            await self.stop()
            raise

    async def _open(
        self, ready: asyncio.Future[EngineFacts], deliver: Callable[[StepResult], None], died: Callable[[str], None]
    ) -> None:
        def receive(message: Message) -> None:
            match message:
                case StepResult():
                    deliver(message)
                case Ready(facts):
                    if not ready.done():
                        ready.set_result(facts)
                case Failed():
                    self._last_words = message
                case _:
                    raise AssertionError(f"the engine sent {type(message).__name__}")

        if self._process is None:
            self.launch()
        loop = asyncio.get_running_loop()
        lost: asyncio.Future[str | None] = loop.create_future()
        assert self._sock is not None
        sock, self._sock = self._sock, None
        try:
            self._transport, _ = await loop.create_unix_connection(lambda: _Receiver(receive, lost), sock=sock)
        except BaseException:
            sock.close()
            raise
        self._burial = loop.create_task(self._bury(lost, ready, died))

    def _spawn(self, theirs: socket.socket) -> "subprocess.Popen[bytes]":
        """On the event loop's thread: the child dies with the *thread* that started it (PR_SET_PDEATHSIG)."""
        return subprocess.Popen(
            [*self._command, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=2,
            process_group=0,
        )

    def send(self, command: Command) -> None:
        frame = encode(command)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame)

    async def stop(self) -> None:
        """The end of its socket ends the child after the step it is in; one that takes long is killed."""
        self._stopping = True
        if self._sock is not None:
            self._sock.close()
        if self._transport is not None:
            self._transport.abort()
        if self._burial is not None:
            await asyncio.shield(self._burial)
        elif self._process is not None:
            await asyncio.to_thread(_wait_or_kill, self._process, self._exit_timeout_seconds)

    async def _bury(
        self, lost: asyncio.Future[str | None], ready: asyncio.Future[EngineFacts], died: Callable[[str], None]
    ) -> None:
        """From the end of the socket to the end of the process; the news is out as soon as a reason is known."""
        assert self._process is not None
        broken = await lost
        reaped = asyncio.create_task(asyncio.to_thread(_wait_or_kill, self._process, self._exit_timeout_seconds))
        if self._last_words is not None:
            reason = f"the engine failed: {self._last_words.error_class}: {self._last_words.message}"
        else:
            reason = broken or _cause_of_death(await reaped)
        if not ready.done():
            ready.set_exception(_start_error(self._last_words, reason))
        elif not self._stopping:
            died(reason)
        await reaped


def _wait_or_kill(process: subprocess.Popen[bytes], timeout_seconds: float) -> int:
    try:
        return process.wait(timeout_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _cause_of_death(returncode: int) -> str:
    if returncode < 0:
        return f"the engine process was killed by {signal.Signals(-returncode).name}"
    return f"the engine process ended with status {returncode}"


def _start_error(last_words: Failed | None, reason: str) -> EvenflowError:
    """What building the engine raised, if it was meant for a person; raised again here."""
    if last_words is not None:
        known = getattr(errors, last_words.error_class, None)
        if known in (errors.ConfigError, errors.ModelError):
            assert isinstance(known, type)
            error = known(last_words.message)
            assert isinstance(error, EvenflowError)
            return error
    return EngineUnavailable(reason)
