"""An asyncio loop whose time passes only when everybody waits, with a network inside it.

A minute of load takes milliseconds, and every instant is exact: what a client says can be compared with what a server
did, to the microsecond. Real sockets are for the tests that are about them.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

T = TypeVar("T")


class _VirtualSelector(selectors.SelectSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everybody waits, and nothing will ever happen"
        self.now += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _VirtualSelector()
        super().__init__(self._clock)
        self._listening: dict[int, Callable[[], asyncio.Protocol]] = {}

    def time(self) -> float:
        return self._clock.now

    def pass_time(self, seconds: float) -> None:
        """As if a callback had computed for so long: everybody else is late."""
        self._clock.now += seconds

    def listen(self, port: int, factory: Callable[[], asyncio.Protocol]) -> None:
        self._listening[port] = factory

    def shut(self, port: int) -> None:
        """Connections that are open stay."""
        del self._listening[port]

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> Any:  # Any: as asyncio has them
        factory = self._listening.get(port)
        if factory is None:
            raise ConnectionRefusedError(111, "Connection refused")
        ours, theirs = _Pipe(self), _Pipe(self)
        ours.peer, theirs.peer = theirs, ours
        theirs.connect(factory())
        ours.connect(protocol_factory())
        return ours, ours.protocol


class _Pipe(asyncio.Transport):
    """One end."""

    peer: "_Pipe"
    protocol: asyncio.Protocol

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop
        self._closing = False

    def connect(self, protocol: asyncio.Protocol) -> None:
        self.protocol = protocol
        protocol.connection_made(self)

    def write(self, data: Any) -> None:  # Any: bytes or a view of them
        if not self._closing:
            self._loop.call_soon(self.peer._deliver, bytes(data))

    def _deliver(self, data: bytes) -> None:
        if not self._closing:
            self.protocol.data_received(data)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """The other end reads what was written before, and then that this end is closed."""
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self.protocol.connection_lost, None)
            self._loop.call_soon(self.peer.close)

    def abort(self) -> None:
        self.close()


def run_virtually(main: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main(cast(VirtualLoop, runner.get_loop())))
