"""The engine process: `python -m evenflow.engine.process FD`, started by the front (engine/child.py).

It has one thread and one socket to the front. Between steps it takes what has arrived without waiting; when there is no
work it sleeps on the socket. Results go out without waiting too, as far as the socket takes them; the rest is kept and
goes out with the next step, so a front that is slow for a moment costs no step anything.

When to end is the front's decision: signals of the terminal or the service manager, which reach both processes, are
ignored here. The end of the socket is the end of this process, whatever it was computing.

Where the step's threads take every core, the front, woken by a result, finds none: the next step has them all, and a
kernel takes one back only at its next tick (4 ms at 250 Hz), once for the front and once more for a client beside it.
So after a request's first token, which somebody waits for, the engine gives way for a moment. Such a step held a
prefill and was much longer than that; steps that only decode never wait.
"""

import ctypes
import faulthandler
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from evenflow.core.errors import EvenflowError
from evenflow.core.events import FirstToken
from evenflow.engine.api import EngineFacts
from evenflow.engine.build import build_core
from evenflow.engine.config import EngineConfig
from evenflow.engine.core import EngineCore
from evenflow.engine.loop import run
from evenflow.engine.messages import Abort, Add, AskPolicy, Command, Inbox, InboxClosed, StepResult
from evenflow.engine.transport import Failed, FrameReader, FrameWriter, Message, Ready, Start

CoreBuilder = Callable[[EngineConfig], tuple[EngineCore, EngineFacts]]
Loop = Callable[[EngineCore, Inbox, Callable[[StepResult], None]], None]

MAX_BACKLOG_BYTES = 64 * 2**20
_RECEIVE_BYTES = 1 << 16
_LAST_WORDS_SECONDS = 5.0
_GIVE_WAY_SECONDS = 0.001  # about what a front takes to pass a token on; half of it helped half as much
_PR_SET_PDEATHSIG = 1


class FrontChannel:
    """The engine's end of the socket: an `Inbox`, and where results go."""

    def __init__(self, sock: socket.socket, *, max_backlog_bytes: int = MAX_BACKLOG_BYTES) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._max_backlog_bytes = max_backlog_bytes
        self._reader = FrameReader()
        self._writer = FrameWriter()
        self._commands: list[Command] = []
        self._backlog: deque[memoryview] = deque()
        self._backlog_bytes = 0

    def start(self) -> Start:
        """The first message, waited for. Raises InboxClosed if the front goes away instead."""
        self._sock.setblocking(True)
        messages: list[Message] = []
        while not messages:
            messages = self._reader.feed(self._receive())
        self._sock.setblocking(False)
        first = messages[0]
        assert isinstance(first, Start)
        self._keep(messages[1:])
        return first

    def drain(self) -> Sequence[Command]:
        try:
            while True:
                data = self._receive()
                self._keep(self._reader.feed(data))
                if len(data) < _RECEIVE_BYTES:
                    break
        except BlockingIOError:
            pass
        commands, self._commands = self._commands, []
        return commands

    def wait(self) -> bool:
        while not self._commands:
            readable, _, _ = select.select([self._sock], [self._sock] if self._backlog else [], [])
            self._flush()
            if readable:
                return True  # the end of the socket too: drain() will see it
        return True

    def deliver(self, message: Message) -> None:
        """Send what the socket takes now and keep the rest; wait only while more than `max_backlog_bytes` are kept."""
        frame = memoryview(self._writer.encode(message))
        self._backlog.append(frame)
        self._backlog_bytes += len(frame)
        self._flush()
        while self._backlog_bytes > self._max_backlog_bytes:
            select.select([], [self._sock], [])
            self._flush()

    def deliver_last(self, message: Message) -> None:
        """Send this and everything before it, and wait until it is gone, but not for ever."""
        self._sock.settimeout(_LAST_WORDS_SECONDS)
        with suppress(OSError):  # if nobody listens, the exit status and stderr have the news
            self._sock.sendall(b"".join([*self._backlog, self._writer.encode(message)]))

    def _receive(self) -> bytes:
        try:
            data = self._sock.recv(_RECEIVE_BYTES)
        except ConnectionError:
            data = b""
        if not data:
            raise InboxClosed
        return data

    def _keep(self, messages: Sequence[Message]) -> None:
        for message in messages:
            assert isinstance(message, Add | Abort | AskPolicy)
            self._commands.append(message)

    def _flush(self) -> None:
        try:
            while self._backlog:
                sent = self._sock.send(self._backlog[0])
                self._backlog_bytes -= sent
                if sent < len(self._backlog[0]):
                    self._backlog[0] = self._backlog[0][sent:]
                else:
                    self._backlog.popleft()
        except BlockingIOError:
            return
        except ConnectionError as error:
            raise InboxClosed from error


def takes_every_core(threads: int | None) -> bool:
    """Whether a step with so many threads (None: as many as there are cores) leaves none for the front."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return threads is None or threads >= cores


def giving_way(
    deliver: Callable[[StepResult], None], pause: Callable[[float], None] = time.sleep
) -> Callable[[StepResult], None]:
    """`deliver`, and then a moment without load on any core if there was somebody's first token."""

    def deliver_and_give_way(result: StepResult) -> None:
        deliver(result)
        if any(type(event) is FirstToken for event in result.events):
            pause(_GIVE_WAY_SECONDS)

    return deliver_and_give_way


def serve(sock: socket.socket, build: CoreBuilder, loop: Loop = run) -> int:
    """Build the engine that the front asks for and run it until the front is gone. Returns the exit status.

    `loop` is the engine's; who wants to look on wraps it.
    """
    channel = FrontChannel(sock)
    try:
        config = channel.start().config
        core, facts = build(config)
        channel.deliver(Ready(facts))
        loop(core, channel, giving_way(channel.deliver) if takes_every_core(config.threads) else channel.deliver)
    except InboxClosed:
        return 0
    except Exception as error:
        if not isinstance(error, EvenflowError):
            traceback.print_exc()
        channel.deliver_last(Failed(type(error).__name__, str(error)))
        return 1
    return 0


def main(argv: Sequence[str], build: CoreBuilder = build_core, loop: Loop = run) -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _die_with_parent()
    faulthandler.enable()
    with socket.socket(fileno=int(argv[1])) as sock:
        sock.set_inheritable(False)
        return serve(sock, build, loop)


def _die_with_parent() -> None:
    """For a step that never ends, where the end of the socket goes unseen. Linux only; elsewhere the socket must do."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
