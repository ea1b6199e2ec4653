"""An event loop that wakes to the microsecond.

epoll waits in whole milliseconds, rounded up, so a plain asyncio timer is late by half a millisecond on average and a
whole one at worst: as much as all the lag a load generator may have. select() takes microseconds, and an epoll
instance is itself a file that select() can watch.
"""

import asyncio
import select
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

# select() knows no file of a higher number. An epoll instance opened early has a low one.
_FD_SETSIZE = 1024


if hasattr(selectors, "EpollSelector"):

    class PreciseSelector(selectors.EpollSelector):
        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            if timeout is not None and timeout > 0.0 and self.fileno() < _FD_SETSIZE:
                select.select([self.fileno()], [], [], timeout)
                timeout = 0.0
            return super().select(timeout)

    def new_selector() -> selectors.BaseSelector:
        return PreciseSelector()

else:  # other systems' selectors take fractions of a millisecond

    def new_selector() -> selectors.BaseSelector:
        return selectors.DefaultSelector()


def precise_loop() -> asyncio.AbstractEventLoop:
    return asyncio.SelectorEventLoop(new_selector())


def run_precisely(main: Callable[[], Coroutine[Any, Any, T]]) -> T:  # Any: what a coroutine sends and is sent
    with asyncio.Runner(loop_factory=precise_loop) as runner:
        return runner.run(main())
