"""A loop that waits in microseconds, on real sockets and real time."""

import asyncio
import selectors
import socket
from collections.abc import Iterator

import pytest

from evenflow.replay.precise_loop import new_selector, run_precisely


@pytest.fixture
def selector() -> Iterator[selectors.BaseSelector]:
    with new_selector() as found:
        yield found


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_what_is_ready_is_found_before_the_timeout(
    selector: selectors.BaseSelector, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    selector.register(ours, selectors.EVENT_READ)
    assert selector.select(0.0001) == []
    theirs.send(b"x")
    ((key, events),) = selector.select(60.0)
    assert (key.fileobj, events) == (ours, selectors.EVENT_READ)
    assert selector.select(0) != []
    assert selector.select(None) != []


def test_timers_are_never_early() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        late = []
        for microseconds in (100, 350, 700, 1200):
            due = loop.time() + microseconds * 1e-6
            await asyncio.sleep(microseconds * 1e-6)
            late.append(loop.time() - due)
        return late

    assert min(run_precisely(main)) >= 0.0


def test_sockets_work_on_it() -> None:
    async def main() -> bytes:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write((await reader.readline()).upper())
            await writer.drain()
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"hello\n")
            said = await reader.read()
            writer.close()
            await writer.wait_closed()
        return said

    assert run_precisely(main) == b"HELLO\n"
