"""Running side by side, and stopping when the client leaves."""

import asyncio
from collections.abc import Awaitable

import pytest
from starlette.types import Message

from e2e.server.scripted import run
from evenflow.core.errors import EngineUnavailable
from evenflow.server.errors import Disconnected
from evenflow.server.stream import all_of, unless_disconnected


class Work:
    """Ends as told, and remembers how it ended."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.cancelled = False

    async def run(self, result: int) -> int:
        self.begun.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return result


async def fail_after(event: asyncio.Event) -> int:
    await event.wait()
    raise EngineUnavailable("gone")


async def never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


def test_results_come_in_the_order_of_the_works() -> None:
    async def scenario() -> None:
        first, second = Work(), Work()
        both = asyncio.create_task(all_of([first.run(1), second.run(2)]))
        await second.begun.wait()
        second.go_on.set()
        first.go_on.set()
        assert await both == [1, 2]

    run(scenario())


def test_the_first_failure_ends_the_others_and_is_raised_as_itself() -> None:
    async def scenario() -> None:
        work = Work()
        with pytest.raises(EngineUnavailable, match="gone"):
            await all_of([work.run(1), fail_after(work.begun)])
        assert work.cancelled

    run(scenario())


def test_work_is_cancelled_when_the_client_leaves_whatever_it_sends_before() -> None:
    async def scenario() -> None:
        work = Work()
        messages: asyncio.Queue[Message] = asyncio.Queue()
        watched = asyncio.create_task(unless_disconnected(messages.get, work.run(1)))
        await work.begun.wait()
        messages.put_nowait({"type": "http.request", "body": b"more", "more_body": False})
        messages.put_nowait({"type": "http.disconnect"})
        with pytest.raises(Disconnected):
            await watched
        assert work.cancelled

    run(scenario())


def test_work_that_ends_ends_the_watch() -> None:
    async def scenario() -> None:
        async def done() -> int:
            return 7

        assert await unless_disconnected(never, done()) == 7
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not [task for task in others if not task.done() and "watch" in repr(task)]

    run(scenario())


def test_what_work_raises_is_raised_as_itself() -> None:
    async def scenario() -> None:
        event = asyncio.Event()
        event.set()
        with pytest.raises(EngineUnavailable, match="gone"):
            await unless_disconnected(never, fail_after(event))

    run(scenario())


@pytest.mark.parametrize("wrap", [lambda work: all_of([work]), lambda work: unless_disconnected(never, work)])
def test_a_cancellation_from_outside_reaches_the_work(wrap: "type[Awaitable[int]]") -> None:
    async def scenario() -> None:
        work = Work()
        task = asyncio.ensure_future(wrap(work.run(1)))  # type: ignore[call-arg]
        await work.begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert work.cancelled

    run(scenario())
