"""What the operator wants: first that the server ends in good order, then that it ends."""

import asyncio
import signal
from collections.abc import Callable


class Shutdown:
    """One per server. `ask` belongs to the thread of the event loop, as a signal handler of the loop does."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.forced = asyncio.Event()
        self.signal_number: int = signal.SIGTERM
        self._first: list[Callable[[], None]] = []

    def subscribe(self, act: Callable[[], None]) -> None:
        """Call `act` when the server is first asked to end."""
        self._first.append(act)

    def ask(self, signal_number: int = signal.SIGTERM) -> None:
        self.signal_number = signal_number
        if self.asked.is_set():
            self.forced.set()
            return
        self.asked.set()
        for act in self._first:
            act()
