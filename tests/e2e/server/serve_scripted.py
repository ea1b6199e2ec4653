"""A server process with a scripted engine: `python serve_scripted.py PORT SHUTDOWN_TIMEOUT KIND`.

Prints its URL when it serves. A prompt is answered backwards; one that begins with "wait" gets one token, and the end
only if the engine is told to drain for longer than no time (KIND `finishing`); "flood" gets more text than a socket
holds, and no end.
"""

import asyncio
import sys
import threading
from collections.abc import Callable, Mapping

from e2e.server.scripted import ByteTokenizer, ScriptedCall, ScriptedEngine, app_for, echo_backwards
from evenflow.core.errors import ConfigError, EngineDead, ModelError
from evenflow.core.request import FinishReason, Request
from evenflow.engine.api import Delta, EngineState, TextOptions
from evenflow.server.binding import ServeSettings
from evenflow.server.encoding import SHORT_CHARS
from evenflow.server.serve import leave_now, run
from evenflow.server.shutdown import Shutdown


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def script(call: ScriptedCall) -> None:
    if call.prompt.startswith("wait"):
        call.say("x")
    elif call.prompt == "flood":
        for _ in range(2000):
            call.give(Delta("x" * 10_000, (1,)))
    else:
        echo_backwards(call)


class SlowTokenizer(ByteTokenizer):
    """Takes for ever for a text that is not short."""

    def encode(self, text: str, /, *, add_special_tokens: bool = True) -> list[int]:
        if len(text) > SHORT_CHARS:
            say("tokenising")
            threading.Event().wait()
        return super().encode(text, add_special_tokens=add_special_tokens)


class Stubborn(ScriptedEngine):
    """What waits never ends by itself."""

    async def drain(self, timeout_seconds: float) -> None:
        self.state = EngineState.DRAINING
        say("draining")
        await super().drain(timeout_seconds)


class Finishing(Stubborn):
    """What waits ends once the engine is told to drain, after a client saw that it drains."""

    async def drain(self, timeout_seconds: float) -> None:
        self.state = EngineState.DRAINING
        say("draining")
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        for call in self.calls:
            call.say("y", FinishReason.STOP)
        await super().drain(timeout_seconds)


class Loading(ScriptedEngine):
    """Never done loading."""

    async def start(self) -> None:
        self.state = EngineState.STARTING
        say("loading")
        await asyncio.Event().wait()


class Unloadable(ScriptedEngine):
    async def start(self) -> None:
        raise ModelError("model.safetensors is broken")


class Mortal(ScriptedEngine):
    """Dies of a request."""

    async def complete(self, request: Request, options: TextOptions) -> Delta:
        self.die("killed by signal 9")
        raise EngineDead("killed by signal 9")


ENGINES: Mapping[str, Callable[[], ScriptedEngine]] = {
    "stubborn": lambda: Stubborn(script),
    "finishing": lambda: Finishing(script),
    "loading": lambda: Loading(script),
    "unloadable": lambda: Unloadable(script),
    "mortal": Mortal,
}


def main(port: str, timeout: str, kind: str) -> int:
    engine = ENGINES[kind]()
    settings = ServeSettings(port=int(port), shutdown_timeout_seconds=float(timeout))
    try:
        shutdown = Shutdown()
        app = app_for(engine, tokenizer=SlowTokenizer(), shutdown=shutdown)
        return run(engine, app, settings, say, shutdown)
    except (ConfigError, ModelError) as error:
        say(str(error))
        return 2


if __name__ == "__main__":
    leave_now(main(*sys.argv[1:]))
