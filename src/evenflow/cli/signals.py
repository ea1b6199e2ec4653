"""A command that has started a server ends it too, and one that has measured keeps it, whatever signal ends it."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING = (signal.SIGTERM, signal.SIGHUP)
_Handler = Callable[[int, FrameType | None], None]


@contextmanager
def ending_in_order() -> Iterator[None]:
    """SIGTERM and SIGHUP (a closed terminal) unwind the program like an interrupt does, instead of cutting it down."""

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    with _handled_by(leave):
        yield


@contextmanager
def ending_as_interrupted() -> Iterator[None]:
    """SIGTERM and SIGHUP are an interrupt to a run that keeps what it has seen until then."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    # A shell that starts a command in the background has it ignore interrupts; these it must not.
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    with _handled_by(interrupt):
        if ignored:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            yield
        finally:
            if ignored:
                signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _handled_by(handler: _Handler) -> Iterator[None]:
    before = [(number, signal.signal(number, handler)) for number in _ENDING]
    try:
        yield
    finally:
        for number, former in before:
            signal.signal(number, former)
