"""The world around the HTTP front, in the hands of a test.

An engine that says what the test says, a tokenizer of bytes, and a client that sees every ASGI message.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.types import ASGIApp, Message, Scope

from evenflow.core.config import SchedulerConfig
from evenflow.core.errors import EngineDead, EngineUnavailable
from evenflow.core.events import Event
from evenflow.core.learned import Learned
from evenflow.core.plan import TokenLogprobs
from evenflow.core.policy.registry import build_policy, limits_of
from evenflow.core.policy.spec import PolicySpec
from evenflow.core.policy.table import policy_from_table
from evenflow.core.request import FinishReason, Request
from evenflow.engine.api import Delta, EngineFacts, EngineState, PolicyView, TextOptions
from evenflow.engine.stream import merge
from evenflow.server.app import create_app
from evenflow.server.encoding import TemplateMessage

T = TypeVar("T")

MODEL = "tiny"
BOS = 256
EOS = 257
VOCAB_SIZE = 258
MAX_MODEL_LEN = 200
PATIENCE_SECONDS = 60.0


def run(scenario: Coroutine[Any, Any, T]) -> T:
    """Runs a scenario; one that hangs fails."""

    async def bounded() -> T:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await scenario

    return asyncio.run(bounded())


class RoleTemplate:
    """`<role>content` a line; refuses a first message from the assistant, as real templates do."""

    def render(self, messages: Sequence[TemplateMessage], *, add_generation_prompt: bool, **variables: object) -> str:
        if messages[0]["role"] == "assistant":
            raise ValueError("conversation must start with the user")
        lines = [f"<{message['role']}>{message['content']}\n" for message in messages]
        lines += [f"{name}={value}\n" for name, value in sorted(variables.items())]
        return "".join(lines) + ("<assistant>" if add_generation_prompt else "")


class ByteTokenizer:
    """A token is a byte; `<s>` and `</s>` are special."""

    vocab_size = VOCAB_SIZE
    bos_token_id = BOS
    eos_token_ids = (EOS,)
    chat_template: RoleTemplate | None = RoleTemplate()

    def encode(self, text: str, /, *, add_special_tokens: bool = True) -> list[int]:
        return [BOS, *text.encode()] if add_special_tokens else list(text.encode())

    def decode(self, token_ids: Sequence[int], /, *, skip_special_tokens: bool = True) -> str:
        shown = [token_id for token_id in token_ids if not (skip_special_tokens and self.is_special(token_id))]
        return b"".join(map(self.token_bytes, shown)).decode(errors="replace")

    def is_special(self, token_id: int, /) -> bool:
        return token_id in (BOS, EOS)

    def token_text(self, token_id: int, /) -> str:
        """A spelling unlike the text, as vocabularies have it."""
        return f"<{token_id}>"

    def token_bytes(self, token_id: int, /) -> bytes:
        return {BOS: b"<s>", EOS: b"</s>"}.get(token_id) or bytes([token_id])


def logprobs_of(token_ids: Sequence[int], num_top: int) -> tuple[TokenLogprobs, ...]:
    """The token itself first, with -1; then the ids that follow it, each less likely."""
    return tuple(
        TokenLogprobs(token_id, -1.0, 1, tuple(((token_id + step) % 256, -1.0 - step) for step in range(num_top)))
        for token_id in token_ids
    )


class ScriptedCall:
    """One request that reached the engine."""

    def __init__(self, request: Request, options: TextOptions) -> None:
        self.request = request
        self.options = options
        self.closed = asyncio.Event()
        self._deltas: asyncio.Queue[Delta | Exception] = asyncio.Queue()

    @property
    def prompt(self) -> str:
        return ByteTokenizer().decode(self.request.prompt_token_ids)

    def give(self, delta: Delta) -> None:
        self._deltas.put_nowait(delta)

    def say(self, text: str, finish_reason: FinishReason | None = None, stop_reason: str | int | None = None) -> None:
        """Text as one token a byte, with log-probabilities if asked for."""
        token_ids = tuple(text.encode())
        asked = self.request.sampling.logprobs
        logprobs = () if asked is None else logprobs_of(token_ids, asked)
        self.give(Delta(text, token_ids, finish_reason, stop_reason, logprobs))

    def say_prompt(self, start: int, end: int) -> None:
        """Log-probabilities of prompt positions, as a chunk of prefill gives them."""
        asked = self.request.sampling.prompt_logprobs
        assert asked is not None
        entries = logprobs_of(self.request.prompt_token_ids[start:end], asked)
        self.give(Delta("", (), prompt_logprobs=entries))

    def fail(self, error: Exception) -> None:
        self._deltas.put_nowait(error)

    async def next(self) -> Delta:
        item = await self._deltas.get()
        if isinstance(item, Exception):
            raise item
        return item


Script = Callable[[ScriptedCall], None]


def echo_backwards(call: ScriptedCall) -> None:
    """Says the prompt's last bytes backwards, one a step, until a length or a stop string ends it."""
    said = ""
    for byte in reversed(call.prompt.encode()):
        letter = chr(byte)
        if letter in call.options.stop:
            call.say("", FinishReason.STOP, letter)
            return
        said += letter
        last = len(said) == call.request.sampling.max_tokens
        call.say(letter, FinishReason.LENGTH if last else None)
        if last:
            return
    call.say("", FinishReason.STOP)


class ScriptedEngine:
    """An Engine. With a script, each request is answered by it; without, the test answers through `next_call`."""

    def __init__(self, script: Script | None = None, state: EngineState = EngineState.READY) -> None:
        self.state = state
        self.death_reason: str | None = None
        self.facts = EngineFacts(
            max_model_len=MAX_MODEL_LEN,
            vocab_size=VOCAB_SIZE,
            num_kv_blocks=64,
            block_size=16,
            max_num_seqs=8,
            max_num_batched_tokens=64,
        )
        self.spec = PolicySpec()
        self.script = script
        self.calls: list[ScriptedCall] = []
        self.stopped = asyncio.Event()
        self._arrivals: asyncio.Queue[ScriptedCall] = asyncio.Queue()

    async def next_call(self) -> ScriptedCall:
        return await self._arrivals.get()

    async def start(self) -> None:
        self.state = EngineState.READY

    async def generate(self, request: Request, options: TextOptions) -> AsyncGenerator[Delta, None]:
        if self.state is not EngineState.READY:
            raise EngineUnavailable(f"the engine is {self.state.value}")
        call = ScriptedCall(request, options)
        self.calls.append(call)
        if self.script is not None:
            self.script(call)
        self._arrivals.put_nowait(call)
        try:
            while True:
                delta = await call.next()
                yield delta
                if delta.finish_reason is not None:
                    return
        finally:
            call.closed.set()

    async def complete(self, request: Request, options: TextOptions) -> Delta:
        async with aclosing(self.generate(request, options)) as deltas:
            return merge([delta async for delta in deltas])

    def die(self, reason: str) -> None:
        self.state = EngineState.DEAD
        self.death_reason = reason
        for call in self.calls:
            call.fail(EngineDead(reason))

    async def drain(self, timeout_seconds: float) -> None:
        if self.state is EngineState.DEAD:
            return
        self.state = EngineState.DRAINING
        try:
            async with asyncio.timeout(timeout_seconds):
                for call in self.calls:
                    await call.closed.wait()
        except TimeoutError:
            for call in self.calls:
                call.give(Delta("", (), FinishReason.ABORT))

    async def stop(self) -> None:
        self.die("stopped")
        self.stopped.set()

    async def policy(self, change: Mapping[str, object] | None = None) -> PolicyView:
        """The same rules as a real engine's, without one."""
        spec = policy_from_table(change or {}, self.spec)
        config = SchedulerConfig(self.facts.max_num_seqs, MAX_MODEL_LEN, VOCAB_SIZE, max_num_batched_tokens=64)
        limits = limits_of(spec, config, num_blocks=64, block_size=16)
        policy = build_policy(spec, limits, Learned())
        self.spec = spec
        return PolicyView(spec, policy.bounds(), limits)

    def subscribe(self, sink: Callable[[Sequence[Event]], None]) -> None:
        raise AssertionError("the front does not subscribe by itself")


class Exchange:
    """One HTTP request to an ASGI app, message by message."""

    def __init__(self, app: ASGIApp, scope: Scope) -> None:
        self._to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._from_app: asyncio.Queue[Message] = asyncio.Queue()
        self._reading = asyncio.Event()
        self._reading.set()
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.body = b""
        self.complete = False
        self._task = asyncio.create_task(self._run(app, scope))

    async def _run(self, app: ASGIApp, scope: Scope) -> None:
        try:
            await app(scope, self._to_app.get, self._send)
        finally:
            self._from_app.put_nowait({"type": "over"})

    async def _send(self, message: Message) -> None:
        await self._reading.wait()
        self._from_app.put_nowait(message)

    def upload(self, body: bytes, *, more: bool = False) -> None:
        self._to_app.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def disconnect(self) -> None:
        self._to_app.put_nowait({"type": "http.disconnect"})

    def stop_reading(self) -> None:
        """From now on the app's `send` waits, as it does for a client that reads too slowly."""
        self._reading.clear()

    def go_on_reading(self) -> None:
        self._reading.set()

    @property
    def answered(self) -> bool:
        """Whether anything of the answer has come, read or not."""
        return self.status is not None or not self._from_app.empty()

    async def next_bytes(self) -> bytes:
        """The next bytes of the body; b"" at the end of the response."""
        while True:
            message = await self._from_app.get()
            match message["type"]:
                case "http.response.start":
                    self.status = message["status"]
                    self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
                case "http.response.body":
                    self.complete = not message.get("more_body", False)
                    self.body += message.get("body", b"")
                    if message.get("body"):
                        return bytes(message["body"])
                case _:
                    self._from_app.put_nowait(message)
                    return b""

    async def finish(self) -> "Exchange":
        """Waits until the app is through with this request."""
        while await self.next_bytes():
            pass
        await self._task
        return self

    def json(self) -> Any:  # Any: the test knows the shape
        return json.loads(self.body)

    def events(self) -> list[Any]:
        """What came as server-sent events; `[DONE]` as that text."""
        lines = [line for line in self.body.decode().split("\n\n") if line]
        assert all(line.startswith("data: ") for line in lines)
        return [line[6:] if line == "data: [DONE]" else json.loads(line[6:]) for line in lines]


class Client:
    """Talks to an app in this process."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def open(self, method: str, path: str, headers: Mapping[str, str] | None = None) -> Exchange:
        """A request whose body is still to come."""
        path, _, query = path.partition("?")
        given = {"content-type": "application/json", **(headers or {})}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in given.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
            "state": {},
        }
        return Exchange(self._app, scope)

    def send(self, path: str, body: object, headers: Mapping[str, str] | None = None) -> Exchange:
        """A POST, not yet answered. Bytes are sent as they are, anything else as JSON."""
        exchange = self.open("POST", path, headers)
        exchange.upload(body if isinstance(body, bytes) else json.dumps(body).encode())
        return exchange

    async def post(self, path: str, body: object, headers: Mapping[str, str] | None = None) -> Exchange:
        return await self.send(path, body, headers).finish()

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Exchange:
        exchange = self.open("GET", path, headers)
        exchange.upload(b"")
        return await exchange.finish()


def app_for(engine: ScriptedEngine, **settings: Any) -> Starlette:  # Any: create_app's own
    return create_app(engine, settings.pop("tokenizer", ByteTokenizer()), served_model_name=MODEL, **settings)


def world(script: Script | None = None, **settings: Any) -> tuple[ScriptedEngine, Client]:  # Any: create_app's own
    engine = ScriptedEngine(script)
    return engine, Client(app_for(engine, **settings))
