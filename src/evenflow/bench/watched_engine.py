"""The engine process of `evenflow bench recording`: a server's own, with a stopwatch where recording is in its way.

    python -m evenflow.bench.watched_engine plain|recording FIGURES FD

What a step of the engine waits for on recording's account is that its events are made, and that they are packed into
the frame that goes to the front; everything else is the front's. Both places are wrapped here, in this process alone,
so a server has no stopwatch in it. `plain` keeps no log, and packs no events: what it takes to pack a step is what a
server without recording would need. FIGURES gets, at the end, a row for each result that went out (`Row`).

Two such engines take turns. A turn is so many steps that the front grants with an `Abort` of nobody (`YOUR_TURN`); then
the engine stands still between two steps until it is granted more.
"""

import sys
import time
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from types import MethodType, ModuleType
from typing import Final, NamedTuple, ParamSpec, TypeVar

import msgspec

from evenflow.core import house, scheduler
from evenflow.core.events import Arrived, ConfigChanged, Finished
from evenflow.core.request import RequestId
from evenflow.engine.api import EngineFacts
from evenflow.engine.build import build_core
from evenflow.engine.config import EngineConfig
from evenflow.engine.core import EngineCore
from evenflow.engine.loop import run
from evenflow.engine.messages import Abort, Command, Inbox, StepResult
from evenflow.engine.process import main as engine_main
from evenflow.engine.transport import FrameWriter, Message

YOUR_TURN: Final = Abort(RequestId("your turn"))
STEPS_OF_A_TURN: Final = 8

# Where each event is made. That none was forgotten is checked: as many are made as go out.
_MAKERS: Final[Sequence[tuple[ModuleType | type, str]]] = (
    (EngineCore, "_record"),
    (scheduler, "FirstToken"),
    (scheduler, "Rejected"),
    (scheduler, "PolicyChanged"),
    (house, "Scheduled"),
    (house, "Preempted"),
    (Arrived, "of"),
    (Finished, "of"),
)

P = ParamSpec("P")
R = TypeVar("R")


class Row(NamedTuple):
    """Of one result: seconds to make its events, and to pack everything."""

    making: float
    packing: float


class _Watch:
    """`rows` of results so far, and what has been made since the last."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.num_made = 0
        self.making = 0.0
        self.packing = 0.0

    def making_of(self, make: Callable[P, R]) -> Callable[P, R]:
        @wraps(make)
        def made(*args: P.args, **kwargs: P.kwargs) -> R:
            began = time.perf_counter()
            event = make(*args, **kwargs)
            self.making += time.perf_counter() - began
            self.num_made += 1
            return event

        return made

    def packing_by(
        self, encode: Callable[[FrameWriter, Message], bytes], *, events: bool
    ) -> Callable[[FrameWriter, Message], bytes]:
        def packed(writer: FrameWriter, message: Message) -> bytes:
            if isinstance(message, StepResult) and not events:
                message = StepResult(message.outputs, (), message.refusals, message.answers)
            began = time.perf_counter()
            frame = encode(writer, message)
            self.packing = time.perf_counter() - began
            return frame

        return packed

    def delivering_by(self, deliver: Callable[[StepResult], None]) -> Callable[[StepResult], None]:
        """Each result is a row."""

        def delivered(result: StepResult) -> None:
            deliver(result)
            # The settings are announced once, before the first step.
            made = [event for event in result.events if not isinstance(event, ConfigChanged)]
            assert len(made) == self.num_made, "an event was made where no stopwatch is"
            self.rows.append(Row(self.making, self.packing))
            self.num_made, self.making = 0, 0.0

        return delivered


class Turns:
    """An inbox that lets the loop run a step only in its turn."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._steps = 0
        self._commands: list[Command] = []

    def drain(self) -> Sequence[Command]:
        self._take()
        while not self._steps and self._inbox.wait():
            self._take()
        self._steps -= 1
        commands, self._commands = self._commands, []
        return commands

    def wait(self) -> bool:
        self._steps = 0  # there is nothing to do: what comes next waits for another turn
        return self._inbox.wait()

    def _take(self) -> None:
        for command in self._inbox.drain():
            if command == YOUR_TURN:
                self._steps = STEPS_OF_A_TURN
            else:
                self._commands.append(command)


def main(argv: Sequence[str]) -> int:
    program, kind, figures, descriptor = argv
    records, watch = kind == "recording", _Watch()
    for place, name in _MAKERS:
        make = getattr(place, name)
        made = watch.making_of(make)
        setattr(place, name, staticmethod(made) if isinstance(make, MethodType) else made)  # its class is bound
    setattr(FrameWriter, "encode", watch.packing_by(FrameWriter.encode, events=records))  # noqa: B010  # of a class

    def build(config: EngineConfig) -> tuple[EngineCore, EngineFacts]:
        return build_core(config, keeps_log=records)

    def loop(core: EngineCore, inbox: Inbox, deliver: Callable[[StepResult], None]) -> None:
        run(core, Turns(inbox), watch.delivering_by(deliver))

    status = engine_main((program, descriptor), build, loop)
    Path(figures).write_bytes(msgspec.json.encode(watch.rows))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv))
