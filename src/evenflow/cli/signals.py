"""A command that has started a server ends it too, whatever signal ends the command."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ending_in_order() -> Iterator[None]:
    """SIGTERM and SIGHUP (a closed terminal) unwind the program like an interrupt does, instead of cutting it down."""

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    before = [(number, signal.signal(number, leave)) for number in _ENDING]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
