"""An event loop in a thread of its own, for callers that wait for what runs on it.

Whoever waits is told when the loop ends: a coroutine that comes too late, or that the end overtakes, is an engine that
was closed, and not a wait without end.
"""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from evenflow.core.errors import EngineUnavailable

T = TypeVar("T")


class LoopThread:
    """A daemon thread whose loop runs until it is ended."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._lock = threading.Lock()
        self._waiting: set[Future[Any]] = set()  # Any: each caller knows what he waits for
        self._over = False
        self._thread = threading.Thread(target=self._live, name="evenflow-streams", daemon=True)
        self._thread.start()

    def _live(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._until_ended())
        finally:
            with self._lock:
                self._over = True
                left = tuple(self._waiting)
            for future in left:
                future.cancel()

    async def _until_ended(self) -> None:
        await self._ended.wait()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Its result, or what it raised. If the caller is interrupted, so is the coroutine."""
        future = self._submit(coroutine)
        try:
            return future.result()
        except CancelledError:
            raise EngineUnavailable("the engine was closed") from None
        except BaseException:
            future.cancel()
            raise
        finally:
            with self._lock:
                self._waiting.discard(future)

    def _submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        with self._lock:
            if self._over or self._loop.is_closed():
                coroutine.close()
                raise EngineUnavailable("the engine was closed")
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
            self._waiting.add(future)
            return future

    def end_after(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Returns at once."""

        async def last() -> None:
            try:
                await coroutine
            finally:
                self._ended.set()

        asyncio.run_coroutine_threadsafe(last(), self._loop)

    def join(self) -> None:
        self._thread.join()
