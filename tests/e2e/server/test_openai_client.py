"""The `openai` package against a real socket: what our users' programs do."""

import asyncio
from collections.abc import Iterator
from typing import cast

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionUserMessageParam

from e2e.server.running import RunningServer, running
from e2e.server.scripted import MODEL, ScriptedCall, ScriptedEngine, app_for, echo_backwards
from evenflow.core.errors import EngineUnavailable
from evenflow.core.request import FinishReason
from evenflow.server.api_keys import ApiKeys

KEY = "key"
HELLO: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "hello"}]


def script(call: ScriptedCall) -> None:
    if call.prompt == "die":
        call.say("x")
        call.fail(EngineUnavailable("killed by signal 9"))
        return
    asked = call.request.sampling.prompt_logprobs
    if asked is not None:
        call.say_prompt(1, len(call.request.prompt_token_ids))
    echo_backwards(call)


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    engine = ScriptedEngine(script)
    with running(engine, app_for(engine, api_keys=ApiKeys.one(KEY))) as server:
        yield server


@pytest.fixture
def client(server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


def test_a_completion(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt="abc", stop="a", extra_headers={"x-request-id": "mine"})
    (choice,) = answer.choices
    assert (choice.text, choice.finish_reason) == ("cb", "stop")
    assert answer.id == "cmpl-mine"
    assert answer._request_id == "mine"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (4, 2)


def test_a_streamed_completion_with_usage(client: openai.OpenAI) -> None:
    with client.completions.create(
        model=MODEL, prompt="abcd", max_tokens=3, stream=True, stream_options={"include_usage": True}
    ) as stream:
        *chunks, last = stream
    assert [chunk.choices[0].text for chunk in chunks] == ["d", "c", "b"]
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, "length"]
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.total_tokens == 8


def test_several_choices_of_several_prompts(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt=["ab", "cd"], n=2, seed=1)
    assert [choice.text for choice in answer.choices] == ["ba", "ba", "dc", "dc"]
    texts = ["", "", "", ""]
    with client.completions.create(model=MODEL, prompt=["ab", "cd"], n=2, stream=True) as stream:
        for chunk in stream:
            for choice in chunk.choices:
                texts[choice.index] += choice.text
    assert texts == ["ba", "ba", "dc", "dc"]


def test_logprobs_and_echo(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt="ab", logprobs=2, echo=True, max_tokens=1)
    (choice,) = answer.choices
    assert choice.text == "abb"
    assert choice.logprobs is not None
    assert choice.logprobs.tokens == ["<s>", "a", "b", "b"]
    assert choice.logprobs.token_logprobs is not None
    assert choice.logprobs.token_logprobs[1:] == [-1.0, -1.0, -1.0]


def test_a_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=HELLO, max_completion_tokens=3, logprobs=True, top_logprobs=1, temperature=0
    )
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", ">tn", "length")
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert [entry.token for entry in choice.logprobs.content] == [">", "t", "n"]
    assert choice.logprobs.content[0].top_logprobs[0].bytes == list(b">")
    # What came back can be sent back.
    turns = cast(list[ChatCompletionMessageParam], [*HELLO, choice.message.model_dump(), *HELLO])  # as programs do
    again = client.chat.completions.create(model=MODEL, messages=turns, max_tokens=1)
    assert again.choices[0].message.content == ">"


def test_a_streamed_chat(client: openai.OpenAI) -> None:
    with client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=2, n=2, stream=True) as stream:
        chunks = list(stream)
    for index in (0, 1):
        mine = [chunk.choices[0] for chunk in chunks if chunk.choices[0].index == index]
        assert mine[0].delta.role == "assistant"
        assert "".join(choice.delta.content or "" for choice in mine) == ">t"
        assert mine[-1].finish_reason == "length"


def test_vllm_fields_as_extra_body(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model=MODEL, prompt="abc", extra_body={"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1, "ignore_eos": True}
    )
    assert answer.choices[0].text == "cba"


def test_the_async_client_streams_and_may_leave_early(server: RunningServer) -> None:
    async def scenario() -> None:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
            texts = await asyncio.gather(*(whole(client, prompt) for prompt in ("ab", "cd", "ef")))
            assert texts == ["ba", "dc", "fe"]
            stream = await client.chat.completions.create(model=MODEL, messages=HELLO, stream=True)
            async for _ in stream:
                break
            await stream.close()
            assert (await client.models.list()).data[0].id == MODEL

    async def whole(client: openai.AsyncOpenAI, prompt: str) -> str:
        stream = await client.completions.create(model=MODEL, prompt=prompt, stream=True)
        return "".join([chunk.choices[0].text async for chunk in stream])

    asyncio.run(scenario())


def test_errors_are_the_clients_own(client: openai.OpenAI, server: RunningServer) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.completions.create(model=MODEL, prompt="a", max_tokens=0)
    assert bad.value.param == "max_tokens"
    with pytest.raises(openai.NotFoundError) as unknown:
        client.completions.create(model="other", prompt="a")
    assert unknown.value.code == "model_not_found"
    with (
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="wrong", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.models.list()
    assert client.completions.create(model=MODEL, prompt="ab").choices[0].text == "ba"


def test_a_stream_that_breaks_raises_after_what_came(client: openai.OpenAI) -> None:
    with client.completions.create(model=MODEL, prompt="die", stream=True) as stream:
        chunks = iter(stream)
        assert next(chunks).choices[0].text == "x"
        with pytest.raises(openai.APIError, match="killed by signal 9"):
            next(chunks)


def test_models(client: openai.OpenAI) -> None:
    assert client.models.retrieve(MODEL).owned_by == "evenflow"


def test_a_finish_reason_is_one_that_the_client_knows() -> None:
    assert {reason.value for reason in (FinishReason.STOP, FinishReason.LENGTH)} == {"stop", "length"}
