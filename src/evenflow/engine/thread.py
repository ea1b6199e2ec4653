"""A `Link` to an engine in a thread of this process: no second process and no bytes, but a crash is everybody's.

The thread is a daemon, so a program that forgets to stop its engine can still end.
"""

import asyncio
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress

from evenflow.core.errors import EngineUnavailable, EvenflowError
from evenflow.engine.api import EngineFacts
from evenflow.engine.build import build_core
from evenflow.engine.config import EngineConfig
from evenflow.engine.core import EngineCore
from evenflow.engine.inbox import QueueInbox
from evenflow.engine.loop import run
from evenflow.engine.messages import Command, InboxClosed, StepResult


class ThreadLink:
    def __init__(
        self,
        config: EngineConfig,
        *,
        build: Callable[[EngineConfig], tuple[EngineCore, EngineFacts]] = build_core,
    ) -> None:
        self._config = config
        self._build = build
        self._inbox = QueueInbox()
        self._thread: threading.Thread | None = None

    async def start(self, deliver: Callable[[StepResult], None], died: Callable[[str], None]) -> EngineFacts:
        assert self._thread is None, "a link starts once"
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[EngineFacts] = loop.create_future()

        def on_loop(callback: Callable[..., object], *arguments: object) -> None:
            try:
                loop.call_soon_threadsafe(callback, *arguments)
            except RuntimeError as error:  # the loop is closed
                raise InboxClosed from error

        def hand_over(result: StepResult) -> None:
            on_loop(deliver, result)
            time.sleep(0)  # the streams' thread waits for the interpreter lock, which pure Python hardly lets go

        def live() -> None:
            with suppress(InboxClosed):
                try:
                    core, facts = self._build(self._config)
                    on_loop(_settle, ready, facts)
                    run(core, self._inbox, hand_over)
                except InboxClosed:
                    raise
                except Exception as error:
                    on_loop(fail, error)

        def fail(error: Exception) -> None:
            if not isinstance(error, EvenflowError):
                traceback.print_exception(error)
            reason = f"the engine failed: {type(error).__name__}: {error}"
            if not ready.done():
                ready.set_exception(error if isinstance(error, EvenflowError) else EngineUnavailable(reason))
            else:
                died(reason)

        self._thread = threading.Thread(target=live, name="evenflow-engine", daemon=True)
        self._thread.start()
        try:
            return await ready
        except BaseException:
            self._inbox.close()
            raise

    def send(self, command: Command) -> None:
        self._inbox.put(command)

    async def stop(self) -> None:
        """Returns after the step that runs; a model that is still loading is loaded first."""
        self._inbox.close()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)


def _settle(ready: asyncio.Future[EngineFacts], facts: EngineFacts) -> None:
    if not ready.done():
        ready.set_result(facts)
