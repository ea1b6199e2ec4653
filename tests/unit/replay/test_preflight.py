"""What a server is asked before a run, in the dialects of several servers, and what it is told if it will not do."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Any

import httpx
import pytest

from evenflow.core.errors import ConfigError
from evenflow.replay.connection import parse_url
from evenflow.replay.noop_server import Answer, Asked, NoopServer, at_once
from evenflow.replay.preflight import Ready, check, counter
from evenflow.replay.request import PlannedRequest
from evenflow.replay.server_facts import MAX_ANSWER_BYTES, ServerFacts, ServerQuestions, ServerUnusable
from evenflow.replay.target import Endpoint, Target
from load_world import PORT
from pair_tokenizer import PairTokenizer
from virtual_loop import VirtualLoop, run_virtually

Reply = dict[str, object] | int | Exception
Replies = Mapping[str, Reply | Callable[[dict[str, Any]], Reply]]  # Any: a request's JSON


def questions(replies: Replies, headers: Mapping[str, str] | None = None) -> ServerQuestions:
    def answer(request: httpx.Request) -> httpx.Response:
        reply = replies.get(request.url.path, 404)
        if callable(reply):
            reply = reply(json.loads(request.content))
        match reply:
            case Exception():
                raise reply
            case int():
                return httpx.Response(reply, headers=headers)
            case _:
                return httpx.Response(200, json=reply, headers=headers)

    return ServerQuestions(httpx.AsyncClient(transport=httpx.MockTransport(answer)), "http://h")


def facts(replies: Replies, model: str | None = None, headers: Mapping[str, str] | None = None) -> ServerFacts:
    async def main(loop: VirtualLoop) -> ServerFacts:
        return await questions(replies, headers).facts(model)

    return run_virtually(main)


def ids(body: dict[str, Any]) -> Reply:
    """Every word one token, but for the long ones."""
    text = body.get("prompt", body.get("content"))
    words = str(text).split()
    return {"tokens": [n for word in words for n in ([len(word)] if len(word) < 7 else [len(word), 99])]}


VLLM: Replies = {
    "/v1/models": {"object": "list", "data": [{"id": "big", "max_model_len": 4096}, {"id": "lora"}]},
    "/version": {"version": "0.19.0"},
    "/tokenize": ids,
}
LLAMA: Replies = {
    "/v1/models": {"data": [{"id": "m.gguf", "meta": {"n_ctx_train": 8192}}]},
    "/props": {"default_generation_settings": {"n_ctx": 2048}, "build_info": "b1234-abc"},
    "/tokenize": lambda body: ids(body) if "content" in body else {"tokens": []},
}


@pytest.mark.parametrize(
    ("replies", "model", "headers", "expected"),
    [
        (VLLM, None, {"server": "uvicorn"}, ServerFacts("big", 4096, "uvicorn version 0.19.0")),
        (VLLM, "lora", {}, ServerFacts("lora", None, "version 0.19.0")),
        (LLAMA, None, {"server": "llama.cpp"}, ServerFacts("m.gguf", 2048, "llama.cpp b1234-abc")),
        ({}, "any", {}, ServerFacts("any", None, "unnamed")),
    ],
)
def test_a_server_is_understood_in_its_dialect(
    replies: Replies, model: str | None, headers: Mapping[str, str], expected: ServerFacts
) -> None:
    assert facts(replies, model, headers) == expected


@pytest.mark.parametrize(
    ("replies", "model", "message"),
    [
        ({"/v1/models": httpx.ConnectError("refused")}, None, "cannot reach http://h: refused; is the server running"),
        (
            {"/v1/models": httpx.ReadTimeout("slow")},
            None,
            "takes connections but does not answer /v1/models within",
        ),
        ({"/v1/models": httpx.RemoteProtocolError("?")}, None, "does not answer /v1/models as an HTTP server would"),
        ({"/v1/models": 401}, None, "http://h wants another API key (HTTP 401); give --api-key"),
        ({"/v1/models": 500}, None, "http://h lists no model (HTTP 500); give --model"),
        (VLLM, "small", "http://h does not serve 'small'; it serves big, lora"),
    ],
)
def test_a_server_that_will_not_do_is_told_why(replies: Replies, model: str | None, message: str) -> None:
    with pytest.raises(ServerUnusable) as caught:
        facts(replies, model)
    assert message in str(caught.value)


def preflight(
    script: Callable[[Asked], Answer] = at_once,
    *,
    replies: Replies = VLLM,
    tokenizer: PairTokenizer | None = None,
    endpoint: Endpoint = Endpoint.COMPLETIONS,
    server: NoopServer | None = None,
) -> Ready:
    serving = server or NoopServer(script)

    async def main(loop: VirtualLoop) -> Ready:
        loop.listen(PORT, serving.protocol)
        target = Target(parse_url(f"http://h:{PORT}"), "", endpoint)
        return await check(target, questions(replies), model=None, tokenizer=tokenizer, seed=1)

    return run_virtually(main)


def length_seen(ready: Ready, num_tokens: int) -> int:
    """How many tokens the no-op server counts in a prompt: ids, or words."""
    asked = Asked(0, "", 0.0, {"prompt": json.loads(ready.prompts.prompt(plan(num_tokens)))})
    return asked.num_prompt_tokens


def plan(num_tokens: int) -> PlannedRequest:
    return PlannedRequest(3, "r3", 0.0, num_tokens, 4)


def test_token_ids_and_running_counts_are_taken_where_they_are_served() -> None:
    server = NoopServer()
    ready = preflight(server=server)
    assert ready.target.model == "big"
    assert "token ids" in ready.prompts.form
    assert length_seen(ready, 50) == 50
    assert len(server.asked) == 1
    assert server.asked[0].body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}


def test_fields_that_are_refused_are_left_out() -> None:
    def strict(asked: Asked) -> Answer:
        options = asked.body.get("stream_options")
        unknown = "ignore_eos" in asked.body or (isinstance(options, dict) and "continuous_usage_stats" in options)
        return Answer(status=400 if unknown else 200)

    ready = preflight(strict)
    assert ready.target.fields == {"ignore_eos": None, "stream_options": {"include_usage": True}}
    assert any("takes no ignore_eos" in note for note in ready.notes)


def test_words_are_sent_where_ids_are_refused() -> None:
    def text_only(asked: Asked) -> Answer:
        return Answer(status=422 if isinstance(asked.body["prompt"], list) else 200)

    ready = preflight(text_only)
    assert "words of one token each" in ready.prompts.form
    assert length_seen(ready, 50) == 50
    text = ready.prompts.prompt(plan(400)).decode()
    assert "science" not in text, "a word of two tokens is not in the pool"


def test_what_a_server_adds_to_every_text_is_taken_off() -> None:
    class Greeting(NoopServer):
        """Counts one token more than there are words, as a server with a beginning-of-text token does."""

    def text_only(asked: Asked) -> Answer:
        if isinstance(asked.body["prompt"], str):
            asked.body["prompt"] += " <s>"
        return Answer(status=422 if isinstance(asked.body["prompt"], list) else 200)

    ready = preflight(server=Greeting(text_only))
    assert any("the server adds 1 tokens to every text" in note for note in ready.notes)
    assert length_seen(ready, 50) == 49


def test_chat_takes_words() -> None:
    server = NoopServer(lambda asked: Answer(field="content"))
    ready = preflight(server=server, endpoint=Endpoint.CHAT)
    assert "words" in ready.prompts.form
    assert "messages" in server.asked[0].body


def test_a_local_tokenizer_stands_in_for_tokenize() -> None:
    replies = {**VLLM, "/tokenize": 404}
    ready = preflight(replies=replies, tokenizer=PairTokenizer())
    assert length_seen(ready, 50) == 50
    assert counter(PairTokenizer())("abcd") == 2
    with pytest.raises(ServerUnusable, match="the server has no /tokenize"):
        preflight(replies=replies)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer(num_tokens=0), "big does not answer a request of 4 tokens: the server streamed no token"),
        (Answer(field=""), "the server streamed no token (it counts 4)"),
        (Answer(first_token_seconds=1e6), "nothing came for 60 s after 0 tokens; it is half-dead"),
        (Answer(num_tokens=500), "it seems to ignore max_tokens"),
        (Answer(status=503), "big does not answer a request of 4 tokens: HTTP 503"),
        (Answer(status=500), "big refuses every form of request; the plainest one with HTTP 500"),
    ],
)
def test_a_server_that_cannot_be_measured_is_told_before_the_run(answer: Answer, message: str) -> None:
    with pytest.raises(ServerUnusable) as caught:
        preflight(lambda asked: answer)
    assert message in str(caught.value)


def test_the_probe_sends_content_of_its_own() -> None:
    """Or the run would find it in a cache."""
    server = NoopServer()
    ready = preflight(server=server)
    probe = server.asked[0].body["prompt"]
    sent = json.loads(ready.prompts.prompt(replace(plan(24), index=0)))
    assert probe != sent


class Dripping(httpx.AsyncByteStream):
    """A piece every second, without an end."""

    def __init__(self, piece: bytes) -> None:
        self._piece = piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(1.0)
            yield self._piece


@pytest.mark.parametrize(
    ("piece", "message"),
    [
        (b" ", "http://h has not answered /v1/models completely within 60 s; it is half-dead"),
        (b" " * (MAX_ANSWER_BYTES // 4), "http://h answers /v1/models with more than 16777216 bytes; is it a server"),
    ],
)
def test_an_answer_without_an_end_is_not_waited_for(piece: bytes, message: str) -> None:
    async def main(loop: VirtualLoop) -> ServerFacts:
        transport = httpx.MockTransport(lambda request: httpx.Response(200, stream=Dripping(piece)))
        return await ServerQuestions(httpx.AsyncClient(transport=transport), "http://h").facts(None)

    with pytest.raises(ServerUnusable) as caught:
        run_virtually(main)
    assert message in str(caught.value)


@pytest.mark.parametrize("tokens", [[-1], [2**40], ["a"]])
def test_token_ids_that_no_model_has_are_not_sent(tokens: list[object]) -> None:
    with pytest.raises(ServerUnusable, match="has no /tokenize"):
        preflight(replies={**VLLM, "/tokenize": {"tokens": tokens}})


@pytest.mark.parametrize("url", ["http://a b:1", "http://" + "x" * 70 + ".com", "http://\tx", "http://a:99999"])
def test_an_address_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="url"):
        parse_url(url)


def test_port_0_is_not_taken_for_no_port() -> None:
    assert parse_url("http://h:0").port == 0
