"""The server's life: bind, load, serve, drain, end.

    bind     before the model loads, so that a taken port is known at once
    load     the port answers meanwhile: /health is alive, /ready says no, the rest is 503
    serve
    drain    at the first SIGTERM or SIGINT: new requests and those whose body is not complete get 503, running ones
             may finish within the shutdown timeout; what is left then is aborted, and its stream ends with an error
             event
    end      exit status 0; 1 if the engine had died, so that a service manager sees a failure and may restart it

A second signal ends everything at once, with the exit status that the signal would have given.
"""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import NoReturn

import uvicorn
from starlette.types import ASGIApp

from evenflow.engine.api import Engine, EngineState
from evenflow.server.binding import ServeSettings, bind, url_of
from evenflow.server.http_protocol import BoundedHttp, Visitors, quieten
from evenflow.server.shutdown import Shutdown

# After the engine has given its last token: how long a slow reader may take for what is on its way. Within the shutdown
# timeout, but at least the shorter of the two: what was aborted at the timeout still hears of it.
LAST_BYTES_SECONDS = (1.0, 5.0)

# Longer than the idle time after which HTTP clients drop a pooled connection, so that it is they who close it: a
# server that closes first may do so while the next request is on its way.
KEEP_ALIVE_SECONDS = 75


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.server_state = Visitors()
        self.up = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are ours (Shutdown): uvicorn would stop listening at the first."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self.up.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self.force_exit:
            # Left out by uvicorn, which then reports the application's end as a crash.
            await self.lifespan.shutdown()

    def hang_up(self) -> None:
        self.should_exit = self.force_exit = True
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def run(
    engine: Engine,
    app: ASGIApp,
    settings: ServeSettings,
    announce: Callable[[str], None],
    shutdown: Shutdown,
    *,
    bound: Callable[[], None] = lambda: None,
) -> int:
    """Serve until a signal; returns the exit status, to be given to `leave_now` when all files are closed.

    `bound` is called once the address is ours, `announce` is given the URL once requests are taken.
    `shutdown` is told of signals; the app should know it too.
    Raises ConfigError if the address cannot be bound, and what `engine.start` raises.
    """
    with bind(settings) as listener:
        bound()
        config = uvicorn_config(app)

        async def main() -> int:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, shutdown.ask, number)
            return await serve(engine, config, listener, settings, announce, shutdown)

        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            return runner.run(main())


def leave_now(status: int) -> NoReturn:
    """End the process without waiting for threads: one that tokenises megabytes cannot be interrupted."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def uvicorn_config(app: ASGIApp, http: type[BoundedHttp] = BoundedHttp) -> uvicorn.Config:
    quieten()
    return uvicorn.Config(
        app,
        http=http,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )


async def serve(
    engine: Engine,
    config: uvicorn.Config,
    listener: socket.socket,
    settings: ServeSettings,
    announce: Callable[[str], None],
    shutdown: Shutdown,
) -> int:
    """The life of the server on a running loop; returns the exit status."""
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    # Without a server there is nothing to wait for; what ended it is raised at the end.
    serving.add_done_callback(lambda _: shutdown.asked.set())
    deadline = monotonic()
    try:
        await server.up.wait()
        if await done_before(engine.start(), shutdown.asked):
            announce(url_of(listener))
            await shutdown.asked.wait()
            deadline = monotonic() + settings.shutdown_timeout_seconds
            if not await done_before(engine.drain(settings.shutdown_timeout_seconds), shutdown.forced):
                return 128 + shutdown.signal_number
        status = 1 if engine.state is EngineState.DEAD else 0
        server.should_exit = True
        shortest, longest = LAST_BYTES_SECONDS
        last_bytes = asyncio.wait((serving,), timeout=min(longest, max(shortest, deadline - monotonic())))
        return status if await done_before(last_bytes, shutdown.forced) else 128 + shutdown.signal_number
    finally:
        server.hang_up()
        await engine.stop()
        await serving


async def done_before(work: Awaitable[object], event: asyncio.Event) -> bool:
    """Whether `work` was done before `event` was set; if it was not, it is cancelled. Raises what `work` raises."""
    task = asyncio.ensure_future(work)
    waiter = asyncio.create_task(event.wait())
    try:
        await asyncio.wait((task, waiter), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            return False
        await task
        return True
    finally:
        for unfinished in (task, waiter):
            unfinished.cancel()
        await asyncio.gather(task, waiter, return_exceptions=True)
