"""A server on a real socket of this machine, in a thread of the test process."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.types import ASGIApp

from e2e.server.scripted import PATIENCE_SECONDS, ScriptedEngine
from evenflow.server.binding import ServeSettings, bind
from evenflow.server.http_protocol import BoundedHttp
from evenflow.server.serve import serve, uvicorn_config
from evenflow.server.shutdown import Shutdown

ANY_PORT = ServeSettings(port=0, shutdown_timeout_seconds=PATIENCE_SECONDS)


@dataclass(frozen=True, slots=True)
class RunningServer:
    url: str
    host: str
    port: int
    loop: asyncio.AbstractEventLoop
    shutdown: Shutdown
    status: "Future[int]"

    def ask_to_end(self) -> None:
        self.loop.call_soon_threadsafe(self.shutdown.ask)


@contextmanager
def running(
    engine: ScriptedEngine, app: ASGIApp, settings: ServeSettings = ANY_PORT, http: type[BoundedHttp] = BoundedHttp
) -> Iterator[RunningServer]:
    """Serves until the context is left, and then ends in good order."""
    config = uvicorn_config(app, http)
    announced: Future[RunningServer] = Future()
    status: Future[int] = Future()

    async def life() -> int:
        shutdown = Shutdown()
        loop = asyncio.get_running_loop()
        with bind(settings) as listener:
            host, port = listener.getsockname()[:2]

            def announce(url: str) -> None:
                announced.set_result(RunningServer(url, host, port, loop, shutdown, status))

            return await serve(engine, config, listener, settings, announce, shutdown)

    def thread() -> None:
        try:
            with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
                status.set_result(runner.run(life()))
        except BaseException as error:
            status.set_exception(error)
            if not announced.done():
                announced.set_exception(error)

    worker = threading.Thread(target=thread, name="server")
    worker.start()
    server = announced.result(PATIENCE_SECONDS)
    try:
        yield server
    finally:
        if not status.done():
            server.ask_to_end()
        worker.join(PATIENCE_SECONDS)
        assert not worker.is_alive()
