"""The engine's end of the socket, in this process: the test holds the front's end."""

import os
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from contract.scripted_engine import BROKEN, UNLOADABLE, VOCAB_SIZE, EchoExecutor, build
from evenflow.core.events import Finished, FirstToken, StepRecord
from evenflow.core.plan import RequestOutput, StepOutcome, StepPlan
from evenflow.core.request import FinishReason, Request, RequestId, SamplingParams
from evenflow.engine.api import EngineFacts
from evenflow.engine.build import assemble
from evenflow.engine.config import Capabilities, EngineConfig, resolve
from evenflow.engine.core import EngineCore
from evenflow.engine.loop import run
from evenflow.engine.messages import Abort, Add, InboxClosed, StepResult
from evenflow.engine.process import FrontChannel, giving_way, serve, takes_every_core
from evenflow.engine.transport import Failed, FrameReader, Message, Ready, Start, encode

R = RequestId("r")


class Front:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._reader = FrameReader()

    def send(self, *messages: Message) -> None:
        self.sock.sendall(b"".join(map(encode, messages)))

    def receive(self, count: int) -> list[Message]:
        messages: list[Message] = []
        while len(messages) < count:
            messages += self._reader.feed(self.sock.recv(1 << 16))
        return messages

    def receive_all(self) -> list[Message]:
        """Everything until the engine's end is closed."""
        messages: list[Message] = []
        while data := self.sock.recv(1 << 16):
            messages += self._reader.feed(data)
        return messages


@pytest.fixture
def ends() -> Iterator[tuple[Front, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.settimeout(60.0)
    with ours, theirs:
        yield Front(ours), theirs


def add(request_id: RequestId = R, max_tokens: int = 5) -> Add:
    return Add(Request(request_id, (65, 66, 67), SamplingParams(max_tokens=max_tokens), arrival_time=0.0))


def result_of(size: int, number: int = 0) -> StepResult:
    return StepResult(outputs=(RequestOutput(R, (number,) * size),))


# ---- the channel -----------------------------------------------------------------------------------------------------


def test_draining_never_waits_and_gives_commands_in_order(ends: tuple[Front, socket.socket]) -> None:
    front, theirs = ends
    channel = FrontChannel(theirs)
    assert list(channel.drain()) == []
    commands = [add(RequestId(f"r{n}")) for n in range(100)]
    front.send(*commands)
    assert list(channel.drain()) == commands
    assert list(channel.drain()) == []


def test_a_command_that_has_come_in_part_is_given_when_it_is_whole(ends: tuple[Front, socket.socket]) -> None:
    front, theirs = ends
    channel = FrontChannel(theirs)
    data = encode(add())
    front.sock.sendall(data[:7])
    assert list(channel.drain()) == []
    front.sock.sendall(data[7:])
    assert channel.wait()
    assert list(channel.drain()) == [add()]


def test_commands_sent_together_with_the_start_are_not_lost(ends: tuple[Front, socket.socket]) -> None:
    front, theirs = ends
    channel = FrontChannel(theirs)
    front.send(Start(EngineConfig(seed=3)), add())
    assert channel.start() == Start(EngineConfig(seed=3))
    assert channel.wait()
    assert list(channel.drain()) == [add()]


def test_a_front_that_is_gone_closes_the_inbox(ends: tuple[Front, socket.socket]) -> None:
    front, theirs = ends
    channel = FrontChannel(theirs)
    front.sock.close()
    assert channel.wait(), "there is something to drain: the end"
    with pytest.raises(InboxClosed):
        channel.drain()
    with pytest.raises(InboxClosed):
        channel.deliver(result_of(1))


def test_a_front_that_does_not_read_holds_up_nothing_and_gets_everything_later(
    ends: tuple[Front, socket.socket],
) -> None:
    front, theirs = ends
    channel = FrontChannel(theirs)
    sent = [result_of(100_000, number) for number in range(20)]  # far more than a socket takes
    for message in sent:
        channel.deliver(message)
    received: list[Message] = []

    def catch_up() -> None:
        received.extend(front.receive(len(sent)))
        front.send(Abort(R))

    reader = threading.Thread(target=catch_up)
    reader.start()
    assert channel.wait()
    reader.join()
    assert received == sent
    assert list(channel.drain()) == [Abort(R)]


def test_above_the_bound_the_engine_waits_for_the_front(ends: tuple[Front, socket.socket]) -> None:
    front, theirs = ends
    channel = FrontChannel(theirs, max_backlog_bytes=0)
    received: list[Message] = []
    reader = threading.Thread(target=lambda: received.extend(front.receive(3)))
    reader.start()
    for number in range(3):
        channel.deliver(result_of(500_000, number))  # returns when the socket has taken it all
    reader.join()
    assert received == [result_of(500_000, number) for number in range(3)]


# ---- the process -----------------------------------------------------------------------------------------------------


def test_an_engine_starts_serves_and_ends_when_the_front_hangs_up(ends: tuple[Front, socket.socket]) -> None:
    front, theirs = ends
    front.send(Start(EngineConfig()), add())
    received: list[Message] = []

    def read_to_the_end_of_the_request() -> None:
        while not (received and _finish_of(received)):
            received.extend(front.receive(1))
        front.sock.close()

    reader = threading.Thread(target=read_to_the_end_of_the_request)
    reader.start()
    assert serve(theirs, build) == 0
    reader.join()
    assert isinstance(received[0], Ready)
    assert received[0].facts.vocab_size == VOCAB_SIZE


def _finish_of(messages: list[Message]) -> Finished | None:
    events = [event for message in messages if isinstance(message, StepResult) for event in message.events]
    return next((event for event in events if isinstance(event, Finished)), None)


def test_a_front_that_hangs_up_at_once_ends_the_engine(ends: tuple[Front, socket.socket]) -> None:
    front, theirs = ends
    front.sock.close()
    assert serve(theirs, build) == 0


def test_an_engine_whose_front_hangs_up_in_mid_work_ends_after_the_step(ends: tuple[Front, socket.socket]) -> None:
    front, theirs = ends
    steps = Steps({3: front.sock.close})
    front.send(Start(EngineConfig()), add(max_tokens=10_000))
    assert serve(theirs, steps.build) == 0
    assert steps.count == 3


@pytest.mark.parametrize(
    ("model", "failed", "loud"),
    [
        (UNLOADABLE, Failed("ModelError", f"{UNLOADABLE}: no such model"), False),
        (BROKEN, Failed("ZeroDivisionError", "broken on purpose"), True),
    ],
)
def test_an_engine_that_cannot_be_built_says_why(
    ends: tuple[Front, socket.socket], capsys: pytest.CaptureFixture[str], model: str, failed: Failed, loud: bool
) -> None:
    front, theirs = ends
    front.send(Start(EngineConfig(model=model)))
    assert serve(theirs, build) == 1
    theirs.close()
    assert front.receive_all() == [failed]
    assert ("Traceback" in capsys.readouterr().err) == loud


def test_a_step_that_raises_is_the_last_thing_said(
    ends: tuple[Front, socket.socket], capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise MemoryError("no room")

    front, theirs = ends
    front.send(Start(EngineConfig()), add())
    assert serve(theirs, Steps({2: fail}).build) == 1
    theirs.close()
    *results, last = front.receive_all()
    assert last == Failed("MemoryError", "no room")
    assert any(isinstance(result, StepResult) and result.outputs for result in results), "step 1 was delivered"
    assert "MemoryError: no room" in capsys.readouterr().err


class Steps:
    """An engine that does something in the middle of its n-th step, counted from 1."""

    def __init__(self, actions: dict[int, Callable[[], None]]) -> None:
        self.count = 0
        self._actions = actions
        self._executor = EchoExecutor()

    def execute(self, plan: StepPlan, /) -> StepOutcome:
        self.count += 1
        self._actions.get(self.count, lambda: None)()
        return self._executor.execute(plan)

    def build(self, config: EngineConfig) -> tuple[EngineCore, EngineFacts]:
        _, facts = build(config)
        resolved = resolve(config, Capabilities(1 << 18, VOCAB_SIZE, bytes_per_block=1, free_memory=1 << 14))
        return assemble(resolved, self, paranoid=True), facts


def test_the_engine_gives_way_after_a_first_token_and_never_between_decodes(ends: tuple[Front, socket.socket]) -> None:
    front, theirs = ends
    core, _ = Steps({6: front.sock.close}).build(EngineConfig())
    happened: list[str] = []

    def deliver(result: StepResult) -> None:
        first = any(isinstance(event, FirstToken) for event in result.events)
        happened.append("first token" if first else "decode")

    front.send(add(max_tokens=10_000))
    run(core, FrontChannel(theirs), giving_way(deliver, pause=lambda seconds: happened.append("pause")))
    assert happened == ["first token", "pause", *["decode"] * 5]


def test_threads_that_leave_a_core_to_the_front_need_not_give_way() -> None:
    assert takes_every_core(None)
    assert takes_every_core(1024)
    cores = len(os.sched_getaffinity(0))
    assert takes_every_core(cores)
    if cores > 1:
        assert not takes_every_core(cores - 1)


def test_an_abort_that_comes_during_a_step_frees_the_request_before_the_next(
    ends: tuple[Front, socket.socket],
) -> None:
    front, theirs = ends
    steps = Steps({4: lambda: front.send(Abort(R)), 10: front.sock.close})
    core, _ = steps.build(EngineConfig())
    results: list[StepResult] = []
    front.send(add(max_tokens=10_000), add(RequestId("other"), max_tokens=10_000))
    run(core, FrontChannel(theirs), results.append)
    events = [event for result in results for event in result.events]
    [finished] = [event for event in events if isinstance(event, Finished)]
    assert (finished.request_id, finished.reason, finished.step) == (R, FinishReason.ABORT, 4)
    ran_in = [e.step for e in events if isinstance(e, StepRecord) and R in dict(e.scheduled)]
    assert ran_in == [1, 2, 3, 4]
    last_words = [output for result in results for output in result.outputs if output.finish_reason is not None]
    assert [(output.request_id, output.finish_reason) for output in last_words] == [(R, FinishReason.ABORT)]
