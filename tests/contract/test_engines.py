"""What every engine promises, whether it lives in a process or in a thread (and on whichever event loop)."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import uvloop

from contract import scripted_engine
from contract.scripted_engine import BROKEN, EOS, HANGS, RAISES, UNLOADABLE
from evenflow.core.errors import (
    ContextOverflow,
    DeadlineTooSoon,
    DuplicateRequest,
    EngineDead,
    EngineUnavailable,
    InvalidRequest,
    ModelError,
    PolicyError,
    QueueFull,
)
from evenflow.core.events import Arrived, ConfigChanged, Event, Finished, PolicyChanged, StepRecord
from evenflow.core.request import FinishReason, Request, RequestId, SamplingParams
from evenflow.engine.api import Delta, Engine, EngineState, TextOptions
from evenflow.engine.child import ProcessLink
from evenflow.engine.client import EngineClient, Link
from evenflow.engine.config import EngineConfig, ExecutorKind
from evenflow.engine.stream import merge
from evenflow.engine.thread import ThreadLink

TIMEOUT_SECONDS = 60.0
FOREVER = 100_000
PARANOID = EngineConfig(block_size=256, paranoid=True, policy="sarathi")
PROCESS_COMMAND = (sys.executable, str(Path(scripted_engine.__file__)))


UNSPEAKABLE = 0xFF


class ByteTokenizer:
    def token_bytes(self, token_id: int, /) -> bytes:
        if token_id == UNSPEAKABLE:
            raise LookupError("no such token")
        return b"" if token_id == EOS else bytes([token_id])

    def is_special(self, token_id: int, /) -> bool:
        return token_id == EOS

    def decode(self, token_ids: Sequence[int], /, *, skip_special_tokens: bool = True) -> str:
        return b"".join(map(self.token_bytes, token_ids)).decode(errors="replace")


def process_link(config: EngineConfig) -> Link:
    return ProcessLink(config, command=PROCESS_COMMAND)


def thread_link(config: EngineConfig) -> Link:
    return ThreadLink(config, build=scripted_engine.build)


@dataclass
class World:
    """One engine under test, the events it has sent, and why and with how many streams it ended by itself if so."""

    engine: EngineClient
    link: Link
    lost: list[tuple[str, int]]
    events: list[Event] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def hear(self, events: Sequence[Event]) -> None:
        self.events.extend(events)
        self._news.set()

    async def until(self, condition: Callable[[], object]) -> None:
        """Returns once the events heard so far make `condition` true."""
        while not condition():
            await self._news.wait()
            self._news.clear()

    def finished(self, request_id: str) -> Finished | None:
        return next((e for e in self.events if isinstance(e, Finished) and e.request_id == request_id), None)


Scenario = Callable[[World], Awaitable[None]]


@dataclass(frozen=True)
class Kind:
    make_link: Callable[[EngineConfig], Link]
    loop_factory: Callable[[], asyncio.AbstractEventLoop]

    def play(self, scenario: Scenario, config: EngineConfig | None = None) -> None:
        """Run the scenario against a started engine, and stop it whatever happens."""

        async def bounded() -> None:
            async with (
                asyncio.timeout(TIMEOUT_SECONDS),
                self.world(config or PARANOID) as world,
            ):
                await world.engine.start()
                await scenario(world)

        with asyncio.Runner(loop_factory=self.loop_factory) as runner:
            runner.run(bounded())

    def world(self, config: EngineConfig) -> AbstractAsyncContextManager[World]:
        return self.over(self.make_link(config))

    @asynccontextmanager
    async def over(self, link: Link) -> AsyncIterator[World]:
        lost: list[tuple[str, int]] = []
        client = EngineClient(link, ByteTokenizer(), lost=lambda *why: lost.append(why))
        world = World(client, link, lost)
        world.engine.subscribe(world.hear)
        try:
            yield world
        finally:
            await world.engine.stop()


KINDS = {
    "process": Kind(process_link, asyncio.new_event_loop),
    "process-uvloop": Kind(process_link, uvloop.new_event_loop),
    "thread": Kind(thread_link, asyncio.new_event_loop),
}


@pytest.fixture(params=["process-uvloop", "thread"])
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[str(request.param)]


@pytest.fixture(params=["process", "process-uvloop"])
def process_kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[str(request.param)]


def ask(
    prompt: str,
    request_id: str = "r",
    *,
    max_tokens: int = FOREVER,
    stop_token_ids: tuple[int, ...] = (),
    end: bool = False,
) -> Request:
    return Request(
        RequestId(request_id),
        (*prompt.encode(), *([EOS] if end else [])),
        SamplingParams(max_tokens=max_tokens, stop_token_ids=stop_token_ids),
        arrival_time=0.0,
        eos_token_ids=(EOS,),
    )


async def read(engine: Engine, request: Request, options: TextOptions | None = None) -> Delta:
    return merge([delta async for delta in engine.generate(request, options or TextOptions())])


# ---- streams ---------------------------------------------------------------------------------------------------------


def test_a_stream_gives_every_token_once_and_ends_with_the_reason(kind: Kind) -> None:
    async def scenario(world: World) -> None:
        whole = await read(world.engine, ask("abc", max_tokens=7))
        assert whole.text == "abcabca"
        assert bytes(whole.token_ids) == b"abcabca"
        assert [entry.token_id for entry in whole.logprobs] == list(b"abcabca")
        assert (whole.finish_reason, whole.stop_reason) == (FinishReason.LENGTH, None)

    kind.play(scenario)


def test_an_end_of_sequence_token_stops_without_a_reason_and_a_stop_token_with_its_id(kind: Kind) -> None:
    async def scenario(world: World) -> None:
        by_eos = await read(world.engine, ask("ab", end=True))
        assert (by_eos.text, by_eos.token_ids, by_eos.stop_reason) == ("ab", (*b"ab", EOS), None)
        by_token = await read(world.engine, ask("ab", stop_token_ids=(ord("b"),)))
        assert (by_token.text, by_token.token_ids, by_token.stop_reason) == ("a", tuple(b"ab"), ord("b"))
        assert by_eos.finish_reason is by_token.finish_reason is FinishReason.STOP

    kind.play(scenario)


def test_streams_of_many_requests_do_not_mix(kind: Kind) -> None:
    async def scenario(world: World) -> None:
        prompts = [f"<{n}>" * (1 + n % 5) for n in range(100)]
        requests = [ask(prompt, f"r{n}", max_tokens=3 * len(prompt) + n) for n, prompt in enumerate(prompts)]
        wholes = await asyncio.gather(*(read(world.engine, request) for request in requests))
        for n, (prompt, whole) in enumerate(zip(prompts, wholes, strict=True)):
            assert whole.text == (prompt * (4 + n))[: 3 * len(prompt) + n]
        assert any(isinstance(e, StepRecord) and e.running > 1 for e in world.events)

    kind.play(scenario)


def test_a_stop_string_ends_the_stream_and_frees_the_request(kind: Kind) -> None:
    async def scenario(world: World) -> None:
        whole = await read(world.engine, ask("hello, world"), TextOptions(stop=("zzz", "dhe")))
        assert whole.text == "hello, worl"
        assert (whole.finish_reason, whole.stop_reason) == (FinishReason.STOP, "dhe")
        assert bytes(whole.token_ids) == b"hello, worldhe"
        await world.until(lambda: world.finished("r"))
        finished = world.finished("r")
        assert finished is not None
        assert finished.reason is FinishReason.STOP

    kind.play(scenario)


def test_a_stop_string_frees_the_request_although_nobody_reads(kind: Kind) -> None:
    async def scenario(world: World) -> None:
        async with aclosing(world.engine.generate(ask("hello"), TextOptions(stop=("hellohello",)))) as deltas:
            first = await anext(deltas)
            await world.until(lambda: world.finished("r"))
            rest = [delta async for delta in deltas]
        assert len(rest) <= 1, "what gathered while nobody read comes as one delta"
        assert merge([first, *rest]).text == ""

    kind.play(scenario)


def test_a_stream_that_nobody_reads_holds_up_nobody(kind: Kind) -> None:
    async def scenario(world: World) -> None:
        async with aclosing(world.engine.generate(ask("unread", "u", max_tokens=500), TextOptions())) as unread:
            first = await anext(unread)
            assert (await read(world.engine, ask("read", max_tokens=1000))).text == "read" * 250
            rest = [delta async for delta in unread]
        assert len(rest) <= 1, "what gathered while nobody read comes as one delta"
        assert merge([first, *rest]).text == ("unread" * 100)[:500]

    kind.play(scenario)


def test_a_whole_completion_can_be_asked_for_at_once(kind: Kind) -> None:
    async def scenario(world: World) -> None:
        whole = await world.engine.complete(ask("abc", max_tokens=7), TextOptions())
        assert (whole.text, bytes(whole.token_ids), len(whole.logprobs)) == ("abcabca", b"abcabca", 7)

    kind.play(scenario)


def test_events_arrive_in_order_from_the_first_one_on(kind: Kind) -> None:
    async def scenario(world: World) -> None:
        await read(world.engine, ask("abc", max_tokens=20))
        await world.until(lambda: world.finished("r"))
        assert isinstance(world.events[0], ConfigChanged)
        assert isinstance(world.events[1], Arrived)
        steps = [event.step for event in world.events if isinstance(event, StepRecord)]
        assert steps == list(range(1, 21))

    kind.play(scenario)


def test_a_sink_that_raises_harms_no_stream(kind: Kind) -> None:
    async def scenario(world: World) -> None:
        reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))

        def broken(events: Sequence[Event]) -> None:
            raise LookupError("sink")

        world.engine.subscribe(broken)
        assert (await read(world.engine, ask("abc", max_tokens=6))).text == "abcabc"
        await world.until(lambda: world.finished("r"))
        assert any(isinstance(error, LookupError) for error in reported)

    kind.play(scenario)


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_a_refused_request_raises_what_the_core_said_and_the_next_one_works(kind: Kind) -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(ContextOverflow, match="max_tokens") as overflow:
            await read(world.engine, ask("abc", max_tokens=1 << 22))
        assert overflow.value.param == "max_tokens"
        assert (await read(world.engine, ask("abc", max_tokens=3))).text == "abc"

    kind.play(scenario)


def test_a_live_id_is_taken_and_free_again_afterwards(kind: Kind) -> None:
    async def scenario(world: World) -> None:
        async with aclosing(world.engine.generate(ask("abc"), TextOptions())) as first:
            await anext(first)
            with pytest.raises(DuplicateRequest, match="'r'"):
                await read(world.engine, ask("xyz", max_tokens=3))
            assert (await anext(first)).text
        await world.until(lambda: world.finished("r"))
        assert (await read(world.engine, ask("xyz", max_tokens=3))).text == "xyz"

    kind.play(scenario)


@pytest.mark.parametrize("priority", [1 << 64, -(1 << 64)])
def test_a_number_too_large_for_the_wire_is_refused_here(process_kind: Kind, priority: int) -> None:
    async def scenario(world: World) -> None:
        request = Request(RequestId("r"), (1,), SamplingParams(), arrival_time=0.0, priority=priority)
        with pytest.raises(InvalidRequest):
            await read(world.engine, request)
        assert (await read(world.engine, ask("abc", max_tokens=3))).text == "abc"

    process_kind.play(scenario)


def test_stop_strings_that_cannot_be_served_are_refused_here(kind: Kind) -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(InvalidRequest, match="empty"):
            await read(world.engine, ask("abc"), TextOptions(stop=("",)))
        assert (await read(world.engine, ask("abc", max_tokens=3))).text == "abc"

    kind.play(scenario)


def test_text_that_cannot_be_made_is_the_trouble_of_its_own_stream(kind: Kind) -> None:
    async def scenario(world: World) -> None:
        other = asyncio.create_task(read(world.engine, ask("abc", "other", max_tokens=300)))
        request = Request(RequestId("r"), (UNSPEAKABLE,), SamplingParams(max_tokens=FOREVER), arrival_time=0.0)
        with pytest.raises(LookupError, match="no such token"):
            await read(world.engine, request)
        assert (await finish_of(world, "r")).reason is FinishReason.ERROR
        assert (await other).text == "abc" * 100

    kind.play(scenario)


# ---- leaving early ---------------------------------------------------------------------------------------------------


async def finish_of(world: World, request_id: str) -> Finished:
    await world.until(lambda: world.finished(request_id))
    finished = world.finished(request_id)
    assert finished is not None
    return finished


@pytest.mark.parametrize("num_deltas", [1, 10])
def test_leaving_a_stream_early_frees_the_request(kind: Kind, num_deltas: int) -> None:
    async def scenario(world: World) -> None:
        async with aclosing(world.engine.generate(ask("abc"), TextOptions())) as deltas:
            for _ in range(num_deltas):
                await anext(deltas)
        assert (await finish_of(world, "r")).reason is FinishReason.ABORT

    kind.play(scenario)


def test_an_iterator_that_is_dropped_frees_the_request(kind: Kind) -> None:
    async def scenario(world: World) -> None:
        async for _ in world.engine.generate(ask("abc"), TextOptions()):
            break
        assert (await finish_of(world, "r")).reason is FinishReason.ABORT

    kind.play(scenario)


@pytest.mark.parametrize("turns", [0, 1, 2, 4])
def test_a_cancelled_reader_frees_the_request_at_whatever_moment(kind: Kind, turns: int) -> None:
    """Cancelled after `turns` turns of the event loop: before the first turn, while queued, or while tokens come."""

    async def scenario(world: World) -> None:
        reader = asyncio.create_task(read(world.engine, ask("abc")))
        for _ in range(turns):
            await asyncio.sleep(0)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        if turns:
            assert (await finish_of(world, "r")).reason is FinishReason.ABORT
        assert (await read(world.engine, ask("xyz", "next", max_tokens=3))).text == "xyz"

    kind.play(scenario)


def test_a_request_that_still_waits_for_its_turn_can_be_left(kind: Kind) -> None:
    async def scenario(world: World) -> None:
        async with aclosing(world.engine.generate(ask("first", "first"), TextOptions())) as first:
            await anext(first)
            waiting = asyncio.create_task(read(world.engine, ask("second", "second")))
            arrived = lambda e: isinstance(e, Arrived) and e.request_id == "second"  # noqa: E731
            await world.until(lambda: any(map(arrived, world.events)))
            waiting.cancel()
            finished = await finish_of(world, "second")
            assert (finished.reason, finished.num_computed_tokens) == (FinishReason.ABORT, 0)
            assert (await anext(first)).text

    kind.play(scenario, replace(PARANOID, max_num_seqs=1))


# ---- the end ---------------------------------------------------------------------------------------------------------


def test_draining_lets_running_requests_finish_and_refuses_new_ones(kind: Kind) -> None:
    async def scenario(world: World) -> None:
        running = asyncio.create_task(read(world.engine, ask("abc", max_tokens=300)))
        await world.until(lambda: world.events and isinstance(world.events[-1], StepRecord))
        drained = asyncio.create_task(world.engine.drain(TIMEOUT_SECONDS))
        await asyncio.sleep(0)
        assert world.engine.state is EngineState.DRAINING
        with pytest.raises(EngineUnavailable, match="draining"):
            await read(world.engine, ask("late", "late", max_tokens=1))
        await drained
        whole = await running
        assert (whole.text, whole.finish_reason) == ("abc" * 100, FinishReason.LENGTH)

    kind.play(scenario)


def test_draining_aborts_what_is_left_after_the_timeout(kind: Kind) -> None:
    async def scenario(world: World) -> None:
        running = asyncio.create_task(read(world.engine, ask("abc"), TextOptions(stop=("abcabcx",))))
        await world.until(lambda: sum(isinstance(e, StepRecord) for e in world.events) > 10)
        await world.engine.drain(0.0)
        whole = await running
        assert whole.finish_reason is FinishReason.ABORT
        assert whole.text == ("abc" * FOREVER)[: len(whole.token_ids)], "held text is released"
        assert (await finish_of(world, "r")).reason is FinishReason.ABORT

    kind.play(scenario)


def test_draining_an_idle_engine_returns_at_once(kind: Kind) -> None:
    async def scenario(world: World) -> None:
        await world.engine.drain(TIMEOUT_SECONDS)
        assert world.engine.state is EngineState.DRAINING

    kind.play(scenario)


def test_stopping_ends_open_streams_with_an_error(kind: Kind) -> None:
    async def scenario(world: World) -> None:
        async with aclosing(world.engine.generate(ask("abc"), TextOptions())) as deltas:
            await anext(deltas)
            await world.engine.stop()
            with pytest.raises(EngineUnavailable, match="stopped"):
                [delta async for delta in deltas]
        assert world.engine.state is EngineState.DEAD
        assert world.lost == []  # it did not end by itself

    kind.play(scenario)


def test_a_stream_that_has_ended_is_still_read_to_its_end_after_a_stop(kind: Kind) -> None:
    async def scenario(world: World) -> None:
        async with aclosing(world.engine.generate(ask("abc", max_tokens=9), TextOptions())) as deltas:
            first = await anext(deltas)
            await world.until(lambda: world.finished("r"))
            await world.engine.stop()
            assert merge([first, *[delta async for delta in deltas]]).text == "abcabcabc"

    kind.play(scenario)


def test_a_step_that_raises_ends_every_stream_and_says_why(kind: Kind, capfd: pytest.CaptureFixture[str]) -> None:
    async def scenario(world: World) -> None:
        others = [asyncio.create_task(read(world.engine, ask("abc", f"r{n}"))) for n in range(3)]
        await world.until(lambda: any(isinstance(e, StepRecord) and e.running == 3 for e in world.events))
        with pytest.raises(EngineUnavailable, match="RuntimeError: the script says so"):
            await read(world.engine, ask(RAISES))
        for other in others:
            with pytest.raises(EngineUnavailable, match="the script says so"):
                await other
        assert world.engine.state is EngineState.DEAD
        assert "RuntimeError: the script says so" in (world.engine.death_reason or "")
        assert world.lost == [(world.engine.death_reason, 4)]
        with pytest.raises(EngineDead, match="the script says so"):
            await read(world.engine, ask("abc", "later"))

    kind.play(scenario)
    assert "Traceback" in capfd.readouterr().err


def test_a_model_that_does_not_load_is_told_in_its_own_words(kind: Kind) -> None:
    async def scenario() -> None:
        async with kind.world(EngineConfig(model=UNLOADABLE)) as world:
            with pytest.raises(ModelError, match=f"^{UNLOADABLE}: no such model$"):
                await world.engine.start()
            assert world.engine.state is EngineState.DEAD

    with asyncio.Runner(loop_factory=kind.loop_factory) as runner:
        runner.run(asyncio.wait_for(scenario(), TIMEOUT_SECONDS))


def test_a_crash_while_building_is_told(kind: Kind, capfd: pytest.CaptureFixture[str]) -> None:
    async def scenario() -> None:
        async with kind.world(EngineConfig(model=BROKEN)) as world:
            with pytest.raises(EngineUnavailable, match="ZeroDivisionError: broken on purpose"):
                await world.engine.start()

    with asyncio.Runner(loop_factory=kind.loop_factory) as runner:
        runner.run(asyncio.wait_for(scenario(), TIMEOUT_SECONDS))
    assert "Traceback" in capfd.readouterr().err


def test_the_program_that_ships_runs_too(process_kind: Kind) -> None:
    async def scenario() -> None:
        link = ProcessLink(EngineConfig(executor=ExecutorKind.SHADOW))
        async with process_kind.over(link) as world:
            await world.engine.start()
            request = ask("abc", max_tokens=10)
            whole = await read(world.engine, request)
            assert len(whole.token_ids) == 10
            again = await read(world.engine, request)
            assert again.token_ids == whole.token_ids

    with asyncio.Runner(loop_factory=process_kind.loop_factory) as runner:
        runner.run(asyncio.wait_for(scenario(), TIMEOUT_SECONDS))


def test_an_engine_may_be_launched_before_there_is_an_event_loop(process_kind: Kind) -> None:
    link = process_link(EngineConfig())
    assert isinstance(link, ProcessLink)
    link.launch()
    launched = link.pid

    async def scenario() -> None:
        async with process_kind.over(link) as world:
            await world.engine.start()
            assert link.pid == launched
            assert (await read(world.engine, ask("abc", max_tokens=6))).text == "abcabc"
            link.abandon()
            assert (await read(world.engine, ask("abc", "r2", max_tokens=3))).text == "abc"

    with asyncio.Runner(loop_factory=process_kind.loop_factory) as runner:
        runner.run(asyncio.wait_for(scenario(), TIMEOUT_SECONDS))
    link.abandon()


def test_an_engine_that_was_launched_in_vain_is_ended() -> None:
    link = ProcessLink(EngineConfig(), command=PROCESS_COMMAND)
    link.launch()
    link.abandon()
    with pytest.raises(ProcessLookupError):
        os.kill(link.pid, 0)
    link.abandon()


def test_an_engine_that_was_launched_and_is_stopped_before_its_start_is_ended() -> None:
    link = ProcessLink(EngineConfig(), command=PROCESS_COMMAND)
    link.launch()
    asyncio.run(link.stop())
    with pytest.raises(ProcessLookupError):
        os.kill(link.pid, 0)


def test_an_engine_that_ends_before_anybody_listens_is_told_of() -> None:
    link = ProcessLink(EngineConfig(), command=(sys.executable, "-c", "raise SystemExit(3)"))
    link.launch()
    os.waitid(os.P_PID, link.pid, os.WEXITED | os.WNOWAIT)

    async def scenario() -> None:
        engine = EngineClient(link, ByteTokenizer())
        with pytest.raises(EngineUnavailable, match="ended with status 3"):
            await engine.start()

    asyncio.run(scenario())


# ---- a process may end in more ways ----------------------------------------------------------------------------------


def test_a_killed_engine_is_noticed_and_every_stream_ends_with_an_error(process_kind: Kind) -> None:
    async def scenario(world: World) -> None:
        assert isinstance(world.link, ProcessLink)
        readers = [asyncio.create_task(read(world.engine, ask("abc", f"r{n}"))) for n in range(5)]
        await world.until(lambda: any(isinstance(e, StepRecord) and e.running == 5 for e in world.events))
        os.kill(world.link.pid, signal.SIGKILL)
        for reader in readers:
            with pytest.raises(EngineUnavailable, match="SIGKILL"):
                await reader
        assert world.engine.state is EngineState.DEAD

    process_kind.play(scenario)


def test_a_request_to_an_engine_that_was_killed_while_idle_raises(process_kind: Kind) -> None:
    async def scenario(world: World) -> None:
        assert isinstance(world.link, ProcessLink)
        os.kill(world.link.pid, signal.SIGKILL)
        with pytest.raises(EngineUnavailable, match="SIGKILL"):
            await read(world.engine, ask("abc"))
        assert world.engine.state is EngineState.DEAD

    process_kind.play(scenario)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_meant_for_the_front_do_not_end_the_engine(process_kind: Kind, number: signal.Signals) -> None:
    async def scenario(world: World) -> None:
        assert isinstance(world.link, ProcessLink)
        os.kill(world.link.pid, number)
        assert (await read(world.engine, ask("abc", max_tokens=6))).text == "abcabc"

    process_kind.play(scenario)


def test_an_engine_that_hangs_in_a_step_can_be_stopped(process_kind: Kind) -> None:
    async def scenario(world: World) -> None:
        assert isinstance(world.link, ProcessLink)
        reader = asyncio.create_task(read(world.engine, ask(HANGS)))
        await asyncio.sleep(0)
        await world.engine.stop()
        with pytest.raises(EngineUnavailable):
            await reader
        with pytest.raises(ProcessLookupError):
            os.kill(world.link.pid, 0)

    def impatient(config: EngineConfig) -> Link:
        return ProcessLink(config, command=PROCESS_COMMAND, exit_timeout_seconds=0.1)

    replace(process_kind, make_link=impatient).play(scenario)


def test_an_engine_that_does_not_answer_is_given_up(process_kind: Kind) -> None:
    async def scenario() -> None:
        link = ProcessLink(EngineConfig(), command=(sys.executable, "-c", "input()"), start_timeout_seconds=0.0)
        engine = EngineClient(link, ByteTokenizer())
        with pytest.raises(EngineUnavailable, match="no answer within 0 seconds"):
            await engine.start()
        assert engine.state is EngineState.DEAD

    with asyncio.Runner(loop_factory=process_kind.loop_factory) as runner:
        runner.run(asyncio.wait_for(scenario(), TIMEOUT_SECONDS))


def test_a_program_that_is_no_engine_is_told_apart(process_kind: Kind) -> None:
    async def scenario() -> None:
        talk = "import socket, sys; socket.socket(fileno=int(sys.argv[1])).sendall(b'HTTP/1.1 200 OK')"
        engine = EngineClient(ProcessLink(EngineConfig(), command=(sys.executable, "-c", talk)), ByteTokenizer())
        with pytest.raises(EngineUnavailable, match="a frame of"):
            await engine.start()

    with asyncio.Runner(loop_factory=process_kind.loop_factory) as runner:
        runner.run(asyncio.wait_for(scenario(), TIMEOUT_SECONDS))


def test_a_command_that_does_not_exist_is_told() -> None:
    async def scenario() -> None:
        engine = EngineClient(ProcessLink(EngineConfig(), command=("/nonexistent/engine",)), ByteTokenizer())
        with pytest.raises(FileNotFoundError):
            await engine.start()
        await engine.stop()

    asyncio.run(scenario())


FRONT = f"""
import asyncio
from evenflow.core.request import Request, RequestId, SamplingParams
from evenflow.engine.child import ProcessLink
from evenflow.engine.config import EngineConfig
from evenflow.engine.messages import Add

async def main():
    link = ProcessLink(EngineConfig(), command={PROCESS_COMMAND!r})
    await link.start(lambda result: None, lambda reason: None)
    print(link.pid, flush=True)
    link.send(Add(Request(RequestId("r"), {tuple(HANGS.encode())!r}, SamplingParams(), 0.0)))
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
def test_an_engine_does_not_outlive_a_front_that_is_killed_even_if_it_hangs() -> None:
    # The engine speaks on its front's stderr.
    with subprocess.Popen([sys.executable, "-c", FRONT], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as front:
        assert front.stdout is not None
        assert front.stderr is not None
        engine = os.pidfd_open(int(front.stdout.readline()))
        try:
            assert front.stderr.readline() == b"hangs\n"
            front.kill()
            ended, _, _ = select.select([engine], [], [], TIMEOUT_SECONDS)
            assert ended
        finally:
            os.close(engine)


# ---- the policy, live ------------------------------------------------------------------------------------------------


def test_the_policy_is_changed_between_two_steps_and_no_stream_breaks(kind: Kind) -> None:
    async def scenario(world: World) -> None:
        before = await world.engine.policy()
        async with aclosing(world.engine.generate(ask("abc", max_tokens=2000), TextOptions())) as deltas:
            first = await anext(deltas)
            after = await world.engine.policy({"preset": "sarathi", "order": "priority"})
            rest = [delta async for delta in deltas]
        assert len(merge([first, *rest]).text) == 2000
        assert (after.spec.order, after.spec.budget) == ("priority", "fixed")
        assert after.spec != before.spec
        assert (await world.engine.policy()) == after
        [changed] = [event for event in world.events if isinstance(event, PolicyChanged)]
        assert dict(changed.settings)["order"] == "priority"

    kind.play(scenario)


def test_a_policy_that_cannot_be_is_refused_as_a_whole(kind: Kind) -> None:
    async def scenario(world: World) -> None:
        before = await world.engine.policy()
        with pytest.raises(PolicyError) as refused:
            await world.engine.policy({"interleave": "shared", "min_prefill_share": 0.9, "max_prefill_share": 0.1})
        assert {problem.field for problem in refused.value.problems} <= {"min_prefill_share", "max_prefill_share"}
        with pytest.raises(PolicyError, match="order"):
            await world.engine.policy({"odrer": "priority"})
        assert (await world.engine.policy()) == before
        assert (await read(world.engine, ask("abc", max_tokens=6))).text == "abcabc"

    kind.play(scenario)


def test_a_dead_engine_has_no_policy(process_kind: Kind) -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(EngineUnavailable):
            await read(world.engine, ask(RAISES))
        with pytest.raises(EngineUnavailable):
            await world.engine.policy()

    process_kind.play(scenario)


def test_a_question_that_the_engine_died_before_answering_is_answered_by_its_death(process_kind: Kind) -> None:
    async def scenario(world: World) -> None:
        async def ask_for_ever() -> None:
            while True:
                await world.engine.policy()

        running = asyncio.ensure_future(read(world.engine, ask(RAISES)))
        with pytest.raises(EngineUnavailable):
            await ask_for_ever()
        with pytest.raises(EngineUnavailable):
            await running

    process_kind.play(scenario)


# ---- overload --------------------------------------------------------------------------------------------------------


def test_a_request_that_is_shed_or_comes_too_late_ends_with_an_error_of_its_own(kind: Kind) -> None:
    async def scenario(world: World) -> None:
        async with aclosing(world.engine.generate(ask("abc", "runs"), TextOptions())) as deltas:
            await anext(deltas)
            waits = asyncio.create_task(read(world.engine, replace(ask("abc", "waits"), service_class="batch")))
            await world.until(lambda: any(isinstance(e, Arrived) and e.request_id == "waits" for e in world.events))
            with pytest.raises(QueueFull) as full:
                await read(world.engine, replace(ask("abc", "same class"), service_class="batch"))
            assert full.value.retry_after_seconds > 0
            better = asyncio.create_task(read(world.engine, replace(ask("abc", "better"), service_class="interactive")))
            with pytest.raises(QueueFull, match="better class"):
                await waits
            with pytest.raises(DeadlineTooSoon):
                await read(world.engine, replace(ask("abc", "late"), ttft_deadline=-1.0))
            better.cancel()

    classes = ("max_num_seqs=1", "max_waiting_requests=1", "classes.batch.rank=2")
    kind.play(scenario, replace(PARANOID, policy_set=classes))
