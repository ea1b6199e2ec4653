"""Bodies that are too large, clients that leave or read slowly, and prompts that take long to tokenise."""

import asyncio
import threading

import pytest

from e2e.server.scripted import (
    ByteTokenizer,
    Exchange,
    echo_backwards,
    run,
    world,
)
from evenflow.core.request import FinishReason
from evenflow.server.body import SMALL_BODY_BYTES
from evenflow.server.encoding import GIANT_CHARS, SHORT_CHARS
from evenflow.server.limits import ServerLimits
from evenflow.server.shutdown import Shutdown

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]
REQUESTS = [
    (COMPLETIONS, {"prompt": "a"}),
    (COMPLETIONS, {"prompt": "a", "stream": True}),
    (COMPLETIONS, {"prompt": "a", "n": 3}),
    (COMPLETIONS, {"prompt": ["a", "b"], "stream": True}),
    (CHAT, {"messages": HELLO}),
    (CHAT, {"messages": HELLO, "stream": True}),
]


class GatedTokenizer(ByteTokenizer):
    """Tokenises texts that are not short only once the gate is open. To be made on the event loop."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.entered = asyncio.Event()
        self.num_entered = 0
        self._loop = asyncio.get_running_loop()

    def encode(self, text: str, /, *, add_special_tokens: bool = True) -> list[int]:
        if len(text) > SHORT_CHARS:
            self.num_entered += 1
            self._loop.call_soon_threadsafe(self.entered.set)
            assert self.gate.wait(60), "nobody opened the gate"
        return super().encode(text[:1], add_special_tokens=add_special_tokens)


@pytest.mark.parametrize(("path", "body"), REQUESTS)
def test_a_client_that_leaves_before_the_first_token_frees_its_requests(path: str, body: dict[str, object]) -> None:
    async def scenario() -> None:
        engine, client = world()
        exchange = client.send(path, body)
        call = await engine.next_call()
        exchange.disconnect()
        await exchange.finish()
        for call in engine.calls:
            await call.closed.wait()
        assert exchange.status is None

    run(scenario())


@pytest.mark.parametrize(("path", "body"), REQUESTS)
def test_a_client_that_leaves_between_tokens_frees_its_requests(path: str, body: dict[str, object]) -> None:
    async def scenario() -> None:
        engine, client = world()
        exchange = client.send(path, body)
        call = await engine.next_call()
        call.say("x")
        if body.get("stream"):
            await exchange.next_bytes()
        exchange.disconnect()
        await exchange.finish()
        for call in engine.calls:
            await call.closed.wait()
        assert not exchange.complete

    run(scenario())


def test_a_client_that_leaves_while_its_last_bytes_wait_frees_its_request() -> None:
    async def scenario() -> None:
        engine, client = world()
        exchange = client.send(COMPLETIONS, {"prompt": "a", "stream": True})
        call = await engine.next_call()
        call.say("x")
        await exchange.next_bytes()
        exchange.stop_reading()
        call.say("y")
        await asyncio.sleep(0)
        exchange.disconnect()
        await call.closed.wait()
        await exchange.finish()

    run(scenario())


def test_a_client_that_leaves_before_its_body_is_complete_reaches_nobody() -> None:
    async def scenario() -> None:
        engine, client = world()
        exchange = client.open("POST", COMPLETIONS)
        exchange.upload(b'{"prompt": "a', more=True)
        exchange.disconnect()
        await exchange.finish()
        assert not engine.calls

    run(scenario())


def test_a_client_that_leaves_while_its_prompt_is_tokenised_reaches_nobody() -> None:
    async def scenario() -> None:
        tokenizer = GatedTokenizer()
        engine, client = world(echo_backwards, tokenizer=tokenizer)
        exchange = client.send(COMPLETIONS, {"prompt": "a" * (SHORT_CHARS + 1)})
        await tokenizer.entered.wait()
        exchange.disconnect()
        await exchange.finish()
        tokenizer.gate.set()
        await client.post(COMPLETIONS, {"prompt": "a" * (SHORT_CHARS + 1)})
        assert len(engine.calls) == 1

    run(scenario())


def test_health_answers_while_a_giant_prompt_is_tokenised() -> None:
    async def scenario() -> None:
        tokenizer = GatedTokenizer()
        _, client = world(echo_backwards, tokenizer=tokenizer)
        exchange = client.send(COMPLETIONS, {"prompt": "a" * (27 * 10**6)})
        await tokenizer.entered.wait()
        # The gate is still closed: these are answered before the prompt is tokenised, or never.
        assert (await client.get("/health")).status == 200
        assert (await client.post(COMPLETIONS, {"prompt": "b"})).status == 200
        assert exchange.status is None
        tokenizer.gate.set()
        assert (await exchange.finish()).status == 200

    run(scenario())


def test_giant_prompts_do_not_stand_in_the_way_of_usual_ones() -> None:
    class OnlyGiantsWait(GatedTokenizer):
        def encode(self, text: str, /, *, add_special_tokens: bool = True) -> list[int]:
            if len(text) <= GIANT_CHARS:
                return ByteTokenizer.encode(self, text[:1], add_special_tokens=add_special_tokens)
            return super().encode(text, add_special_tokens=add_special_tokens)

    async def scenario() -> None:
        tokenizer = OnlyGiantsWait()
        _, client = world(echo_backwards, tokenizer=tokenizer)
        giants = [client.send(COMPLETIONS, {"prompt": "a" * (GIANT_CHARS + 1)}) for _ in range(10)]
        await tokenizer.entered.wait()
        assert (await client.post(COMPLETIONS, {"prompt": "b" * (SHORT_CHARS + 1)})).status == 200
        assert tokenizer.num_entered == 1
        tokenizer.gate.set()
        assert [(await giant.finish()).status for giant in giants] == [200] * 10

    run(scenario())


def test_a_slow_reader_does_not_hold_up_others() -> None:
    async def scenario() -> None:
        engine, client = world()
        slow = client.send(COMPLETIONS, {"prompt": "a", "stream": True})
        slow_call = await engine.next_call()
        slow_call.say("x")
        await slow.next_bytes()
        slow.stop_reading()
        for _ in range(100):
            slow_call.say("x")
        quick = client.send(COMPLETIONS, {"prompt": "b", "stream": True})
        quick_call = await engine.next_call()
        quick_call.say("y")
        assert b'"y"' in await quick.next_bytes()
        quick_call.say("", FinishReason.STOP)
        assert (await quick.finish()).complete
        slow_call.say("", FinishReason.STOP)
        slow.go_on_reading()
        assert (await slow.finish()).body.count(b'"text":"x"') == 101

    run(scenario())


def chunks_of(exchange: Exchange, chunk: bytes, count: int) -> None:
    for _ in range(count):
        exchange.upload(chunk, more=True)


def test_a_body_is_refused_as_soon_as_it_is_too_large() -> None:
    async def scenario() -> None:
        _, client = world(echo_backwards, limits=ServerLimits(max_body_bytes=1000))
        # Announced: refused before a byte of it.
        exchange = client.open("POST", COMPLETIONS, {"content-length": "1001"})
        assert (await exchange.finish()).status == 413
        assert exchange.json()["error"]["code"] == "request_too_large"
        # Not announced: refused at the byte that is too many, though more is to come.
        exchange = client.open("POST", COMPLETIONS)
        chunks_of(exchange, b" " * 100, 11)
        assert (await exchange.finish()).status == 413
        # Announced falsely.
        exchange = client.open("POST", COMPLETIONS, {"content-length": "5"})
        chunks_of(exchange, b" " * 100, 11)
        assert (await exchange.finish()).status == 413
        # The largest there may be.
        body = b'{"prompt": "abc"}'
        assert (await client.post(COMPLETIONS, body + b" " * (1000 - len(body)))).status == 200

    run(scenario())


def test_large_bodies_share_a_bound_and_give_their_share_back() -> None:
    async def scenario() -> None:
        large = b" " * (2 * SMALL_BODY_BYTES)
        limits = ServerLimits(max_body_bytes_in_flight=3 * SMALL_BODY_BYTES)
        _, client = world(echo_backwards, limits=limits)
        first = client.open("POST", COMPLETIONS)
        first.upload(b'{"prompt": "abc"' + large, more=True)
        await asyncio.sleep(0)
        second = await client.post(COMPLETIONS, b'{"prompt": "abc"}' + large)
        assert (second.status, second.json()["error"]["code"]) == (429, "too_many_bodies")
        assert int(second.headers["retry-after"]) >= 1
        # Small ones are let in nevertheless.
        assert (await client.post(COMPLETIONS, {"prompt": "abc"})).status == 200
        first.upload(b"}")
        assert (await first.finish()).status == 200
        assert (await client.post(COMPLETIONS, b'{"prompt": "abc"}' + large)).status == 200

    run(scenario())


def test_a_body_that_never_ends_is_given_up() -> None:
    async def scenario() -> None:
        _, client = world(echo_backwards, limits=ServerLimits(max_body_seconds=0))
        exchange = client.open("POST", COMPLETIONS)
        exchange.upload(b'{"prompt": ', more=True)
        assert (await exchange.finish()).status == 408
        assert exchange.json()["error"]["code"] == "request_timeout"

    run(scenario())


def test_a_long_answer_is_written_beside_the_event_loop() -> None:
    writers: set[str] = set()

    class Watched(ByteTokenizer):
        def token_bytes(self, token_id: int, /) -> bytes:
            writers.add(threading.current_thread().name)
            return super().token_bytes(token_id)

    async def scenario() -> None:
        _, client = world(echo_backwards, tokenizer=Watched())
        here = threading.current_thread().name
        for prompt, beside in (("abc", False), ("abc" * 20, True)):
            writers.clear()
            body = {"messages": [{"role": "user", "content": prompt}], "logprobs": True, "top_logprobs": 20}
            answer = await client.post(CHAT, body)
            assert len(answer.json()["choices"][0]["logprobs"]["content"]) >= len(prompt)
            assert (here not in writers) == beside

    run(scenario())


def test_once_the_server_ends_a_body_that_is_not_there_is_refused() -> None:
    async def scenario() -> None:
        shutdown = Shutdown()
        _, client = world(echo_backwards, shutdown=shutdown)
        begun = client.open("POST", COMPLETIONS)
        begun.upload(b'{"prompt": ', more=True)
        await asyncio.sleep(0)
        shutdown.ask()
        late = client.open("POST", "/tokenize")
        for exchange in (begun, late):
            assert (await exchange.finish()).status == 503
            assert exchange.json()["error"]["code"] == "engine_unavailable"
            assert exchange.headers["connection"] == "close"
            assert int(exchange.headers["retry-after"]) >= 1
        # The engine still takes what is complete; it knows itself when it does not.
        assert (await client.post(COMPLETIONS, {"prompt": "abc"})).status == 200

    run(scenario())


def test_a_request_id_can_be_used_again_once_its_request_is_over_but_not_before() -> None:
    async def scenario() -> None:
        engine, client = world()
        headers = {"x-request-id": "same"}
        first = client.send(COMPLETIONS, {"prompt": "a"}, headers)
        call = await engine.next_call()
        second = await client.post(CHAT, {"messages": HELLO}, headers)
        assert (second.status, second.json()["error"]["code"]) == (400, "duplicate_request_id")
        assert second.json()["error"]["param"] == "x-request-id"
        call.say("x", FinishReason.STOP)
        assert (await first.finish()).status == 200
        third = client.send(COMPLETIONS, {"prompt": "a"}, headers)
        (await engine.next_call()).say("x", FinishReason.STOP)
        assert (await third.finish()).status == 200

    run(scenario())


def test_requests_without_an_id_get_different_ones() -> None:
    async def scenario() -> None:
        _, client = world(echo_backwards)
        answers = [await client.post(COMPLETIONS, {"prompt": "a"}) for _ in range(2)]
        ids = [answer.headers["x-request-id"] for answer in answers]
        assert ids[0] != ids[1]
        assert [answer.json()["id"] for answer in answers] == [f"cmpl-{request_id}" for request_id in ids]

    run(scenario())
