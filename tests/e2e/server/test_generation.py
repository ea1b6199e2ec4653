"""Completions and chat completions, whole and streamed, as a client sees them."""

import asyncio
from typing import Any

import pytest

from e2e.server.scripted import BOS, MAX_MODEL_LEN, MODEL, ScriptedCall, echo_backwards, run, world
from evenflow.core.plan import TokenLogprobs
from evenflow.core.request import FinishReason
from evenflow.engine.api import Delta

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]


def test_a_completion_has_the_shape_that_openai_gives_it() -> None:
    async def scenario() -> None:
        _, client = world(echo_backwards)
        answer = await client.post(COMPLETIONS, {"model": MODEL, "prompt": "abc"}, {"x-request-id": "r1"})
        body = answer.json()
        assert isinstance(body.pop("created"), int)
        assert body == {
            "id": "cmpl-r1",
            "object": "text_completion",
            "model": MODEL,
            "choices": [{"index": 0, "text": "cba", "logprobs": None, "finish_reason": "stop"}],
            "usage": {
                "prompt_tokens": 4,
                "completion_tokens": 3,
                "total_tokens": 7,
                "prompt_tokens_details": {"cached_tokens": 0},
            },
        }
        assert answer.headers["x-request-id"] == "r1"

    run(scenario())


def test_a_chat_completion_has_the_shape_that_openai_gives_it() -> None:
    async def scenario() -> None:
        engine, client = world(lambda call: call.say("hi", FinishReason.LENGTH))
        answer = await client.post(CHAT, {"model": MODEL, "messages": HELLO}, {"x-request-id": "r1"})
        body = answer.json()
        assert isinstance(body.pop("created"), int)
        assert body == {
            "id": "chatcmpl-r1",
            "object": "chat.completion",
            "model": MODEL,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "hi", "refusal": None},
                    "logprobs": None,
                    "finish_reason": "length",
                }
            ],
            "usage": {
                "prompt_tokens": 23,
                "completion_tokens": 2,
                "total_tokens": 25,
                "prompt_tokens_details": {"cached_tokens": 0},
            },
        }
        assert engine.calls[0].prompt == "<user>hello\n<assistant>"

    run(scenario())


def test_a_streamed_completion_gives_each_delta_as_it_comes() -> None:
    async def scenario() -> None:
        engine, client = world()
        exchange = client.send(COMPLETIONS, {"prompt": "abc", "stream": True})
        call = await engine.next_call()
        call.say("x")
        assert b'"text":"x"' in await exchange.next_bytes()
        call.say("y")
        assert b'"text":"y"' in await exchange.next_bytes()
        call.say("", FinishReason.STOP, "END")
        await exchange.finish()
        *chunks, last, done = exchange.events()
        assert [chunk["choices"][0]["text"] for chunk in chunks] == ["x", "y"]
        assert last["choices"] == [
            {"index": 0, "text": "", "logprobs": None, "finish_reason": "stop", "stop_reason": "END"}
        ]
        assert "usage" not in last
        assert done == "[DONE]"
        assert exchange.headers["content-type"] == "text/event-stream; charset=utf-8"

    run(scenario())


def test_a_streamed_chat_begins_with_the_role_and_ends_with_an_empty_delta() -> None:
    async def scenario() -> None:
        _, client = world(echo_backwards)
        body = {"messages": HELLO, "stream": True, "max_tokens": 3, "stream_options": {"include_usage": True}}
        exchange = await client.post(CHAT, body)
        *chunks, usage, done = exchange.events()
        assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
            {"role": "assistant", "content": ""},
            {"content": ">"},
            {"content": "t"},
            {"content": "n"},
        ]
        assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, None, "length"]
        assert all(chunk["usage"] is None for chunk in chunks)
        assert usage["choices"] == []
        assert usage["usage"]["completion_tokens"] == 3
        assert done == "[DONE]"

    run(scenario())


def test_a_delta_without_text_is_not_an_event() -> None:
    async def scenario() -> None:
        engine, client = world()
        exchange = client.send(COMPLETIONS, {"prompt": "abc", "stream": True})
        call = await engine.next_call()
        call.give(Delta("", (1,)))
        call.give(Delta("held", (2, 3), FinishReason.STOP))
        await exchange.finish()
        assert len(exchange.events()) == 2

    run(scenario())


def test_several_prompts_with_several_sequences_each_are_indexed_prompt_by_prompt() -> None:
    async def scenario() -> None:
        engine, client = world(echo_backwards)
        answer = await client.post(COMPLETIONS, {"prompt": ["ab", "cd"], "n": 2}, {"x-request-id": "r"})
        choices = answer.json()["choices"]
        assert [(choice["index"], choice["text"]) for choice in choices] == [
            (0, "ba"),
            (1, "ba"),
            (2, "dc"),
            (3, "dc"),
        ]
        assert [call.request.id for call in engine.calls] == ["cmpl-r~0", "cmpl-r~1", "cmpl-r~2", "cmpl-r~3"]
        assert answer.json()["usage"]["prompt_tokens"] == 6
        assert answer.json()["usage"]["completion_tokens"] == 8

    run(scenario())


def test_sequences_of_a_seeded_prompt_get_seeds_that_follow_it_and_stay_in_range() -> None:
    async def scenario() -> None:
        engine, client = world(echo_backwards)
        await client.post(COMPLETIONS, {"prompt": ["ab", "cd"], "n": 2, "seed": 2**63 - 1})
        seeds = [call.request.sampling.seed for call in engine.calls]
        assert seeds == [2**63 - 1, -(2**63), 2**63 - 1, -(2**63)]

    run(scenario())


def test_streamed_sequences_interleave_as_they_come() -> None:
    async def scenario() -> None:
        engine, client = world()
        exchange = client.send(COMPLETIONS, {"prompt": "a", "n": 2, "stream": True})
        first, second = await engine.next_call(), await engine.next_call()
        for call, text in ((second, "s"), (first, "f"), (second, "t")):
            call.say(text)
            await exchange.next_bytes()
        first.say("", FinishReason.STOP)
        second.say("", FinishReason.LENGTH)
        *chunks, _ = (await exchange.finish()).events()
        seen = [(chunk["choices"][0]["index"], chunk["choices"][0]["text"]) for chunk in chunks]
        assert seen[:3] == [(1, "s"), (0, "f"), (1, "t")]
        assert sorted(seen[3:]) == [(0, ""), (1, "")]

    run(scenario())


@pytest.mark.parametrize(
    ("prompt", "seen"),
    [
        ("hé", [(BOS, 104, 195, 169)]),
        (["a", "b"], [(BOS, 97), (BOS, 98)]),
        ([1, 2, 3], [(1, 2, 3)]),
        ([[1], [2, 3]], [(1,), (2, 3)]),
    ],
)
def test_a_prompt_may_be_text_texts_ids_or_lists_of_ids(prompt: object, seen: list[tuple[int, ...]]) -> None:
    async def scenario() -> None:
        engine, client = world(lambda call: call.say("x", FinishReason.STOP))
        answer = await client.post(COMPLETIONS, {"prompt": prompt})
        assert answer.status == 200, answer.body
        assert [call.request.prompt_token_ids for call in engine.calls] == seen

    run(scenario())


def test_fields_reach_the_engine() -> None:
    async def scenario() -> None:
        engine, client = world(lambda call: call.say("x", FinishReason.STOP))
        fields = {
            "max_tokens": 5,
            "temperature": 0.5,
            "top_p": 0.9,
            "top_k": 7,
            "min_p": 0.1,
            "presence_penalty": 0.2,
            "frequency_penalty": -0.2,
            "repetition_penalty": 1.1,
            "logit_bias": {"65": 1, "66": -2.5},
            "seed": 11,
            "min_tokens": 2,
            "stop": ["A", "BB"],
            "stop_token_ids": [9],
            "ignore_eos": True,
            "skip_special_tokens": False,
            "include_stop_str_in_output": True,
            "add_special_tokens": False,
            "priority": -3,
            "cache_salt": "mine",
            "logprobs": 2,
        }
        answer = await client.post(COMPLETIONS, {"prompt": "p", **fields})
        assert answer.status == 200, answer.body
        (call,) = engine.calls
        sampling, options = call.request.sampling, call.options
        assert call.request.prompt_token_ids == (112,)
        assert (call.request.priority, call.request.cache_salt, call.request.eos_token_ids) == (-3, "mine", (257,))
        for name in ("max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "min_tokens", "logprobs"):
            assert getattr(sampling, name) == fields[name]
        for name in ("presence_penalty", "frequency_penalty", "repetition_penalty", "ignore_eos"):
            assert getattr(sampling, name) == fields[name]
        assert sampling.logit_bias == ((65, 1.0), (66, -2.5))
        assert sampling.stop_token_ids == (9,)
        assert sampling.prompt_logprobs is None
        assert options.stop == ("A", "BB")
        assert (options.skip_special_tokens, options.include_stop_str_in_output, options.min_tokens) == (False, True, 2)

    run(scenario())


@pytest.mark.parametrize(
    ("path", "body", "max_tokens"),
    [
        (COMPLETIONS, {"prompt": "a"}, 16),
        (COMPLETIONS, {"prompt": [1] * (MAX_MODEL_LEN - 3)}, 3),
        (COMPLETIONS, {"prompt": [1] * (MAX_MODEL_LEN - 3), "max_tokens": 3}, 3),
        (CHAT, {"messages": HELLO}, MAX_MODEL_LEN - 23),
        (CHAT, {"messages": HELLO, "max_tokens": 4}, 4),
        (CHAT, {"messages": HELLO, "max_completion_tokens": 5}, 5),
        (CHAT, {"messages": HELLO, "max_completion_tokens": 6, "max_tokens": 6}, 6),
    ],
)
def test_the_length_is_what_was_asked_or_a_default_that_fits(path: str, body: Any, max_tokens: int) -> None:
    async def scenario() -> None:
        engine, client = world(lambda call: call.say("x", FinishReason.STOP))
        answer = await client.post(path, body)
        assert answer.status == 200, answer.body
        assert engine.calls[0].request.sampling.max_tokens == max_tokens

    run(scenario())


def test_echo_puts_the_prompt_before_the_text() -> None:
    async def scenario() -> None:
        _, client = world(echo_backwards)
        for prompt, text in (("ab", "abba"), ([97, 98], "abba")):
            answer = await client.post(COMPLETIONS, {"prompt": prompt, "echo": True})
            assert answer.json()["choices"][0]["text"] == text

    run(scenario())


def test_echo_with_logprobs_covers_the_prompt_whose_first_token_has_none() -> None:
    async def scenario(stream: bool) -> dict[str, Any]:
        engine, client = world()
        body = {"prompt": "aé", "echo": True, "logprobs": 2, "stream": stream}
        exchange = client.send(COMPLETIONS, body)
        call = await engine.next_call()
        assert call.request.sampling.prompt_logprobs == 2
        call.say_prompt(1, 3)
        call.say_prompt(3, 4)
        call.say("z", FinishReason.STOP)
        await exchange.finish()
        answer: dict[str, Any] = exchange.events()[0] if stream else exchange.json()
        return answer

    for stream in (False, True):
        choice = run(scenario(stream))["choices"][0]
        assert choice["text"] == "aéz"
        logprobs = choice["logprobs"]
        assert logprobs["tokens"] == ["<s>", "a", "�", "�", "z"]
        assert logprobs["token_logprobs"] == [None, -1.0, -1.0, -1.0, -1.0]
        assert logprobs["top_logprobs"][0] is None
        assert logprobs["top_logprobs"][4] == {"z": -1.0, "{": -2.0}
        # `<s>` is not in the text; the two bytes of é begin at the same character.
        assert logprobs["text_offset"] == [0, 0, 1, 1, 2]


def test_completion_logprobs_continue_their_offsets_across_events() -> None:
    async def scenario() -> None:
        engine, client = world()
        exchange = client.send(COMPLETIONS, {"prompt": "a", "logprobs": 0, "stream": True})
        call = await engine.next_call()
        call.say("xy")
        await exchange.next_bytes()
        call.say("z", FinishReason.STOP)
        await exchange.finish()
        logprobs = [event["choices"][0]["logprobs"] for event in exchange.events()[:-1]]
        assert [part["text_offset"] for part in logprobs] == [[0, 1], [2]]
        assert logprobs[1]["top_logprobs"] == [{"z": -1.0}]

    run(scenario())


def test_the_token_itself_is_among_its_top_logprobs_even_if_it_was_unlikely() -> None:
    def script(call: ScriptedCall) -> None:
        entry = TokenLogprobs(97, float("-inf"), 50, ((98, -0.1),))
        call.give(Delta("a", (97,), FinishReason.STOP, logprobs=(entry,)))

    async def scenario() -> None:
        _, client = world(script)
        answer = await client.post(COMPLETIONS, {"prompt": "a", "logprobs": 1})
        logprobs = answer.json()["choices"][0]["logprobs"]
        assert logprobs["top_logprobs"] == [{"b": -0.1, "a": -9999.0}]
        assert logprobs["token_logprobs"] == [-9999.0]

    run(scenario())


def test_chat_logprobs_are_objects_with_bytes() -> None:
    async def scenario(stream: bool) -> Any:
        _, client = world(lambda call: call.say("x", FinishReason.STOP))
        body = {"messages": HELLO, "logprobs": True, "top_logprobs": 2, "stream": stream}
        answer = await client.post(CHAT, body)
        return (answer.events()[1] if stream else answer.json())["choices"][0]["logprobs"]

    expected = {
        "content": [
            {
                "token": "x",
                "logprob": -1.0,
                "bytes": [120],
                "top_logprobs": [
                    {"token": "x", "logprob": -1.0, "bytes": [120]},
                    {"token": "y", "logprob": -2.0, "bytes": [121]},
                ],
            }
        ],
        "refusal": None,
    }
    assert run(scenario(False)) == expected
    assert run(scenario(True)) == expected


def test_chat_logprobs_without_a_number_have_no_alternatives() -> None:
    async def scenario() -> None:
        _, client = world(lambda call: call.say("x", FinishReason.STOP))
        answer = await client.post(CHAT, {"messages": HELLO, "logprobs": True})
        (entry,) = answer.json()["choices"][0]["logprobs"]["content"]
        assert entry["top_logprobs"] == []

    run(scenario())


def test_messages_may_have_text_parts_and_developers_are_systems() -> None:
    async def scenario() -> None:
        engine, client = world(lambda call: call.say("x", FinishReason.STOP))
        parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
        messages = [{"role": "developer", "content": "s"}, {"role": "user", "content": parts}]
        body = {"messages": messages, "add_generation_prompt": False, "chat_template_kwargs": {"deep": True}}
        answer = await client.post(CHAT, body)
        assert answer.status == 200, answer.body
        assert engine.calls[0].prompt == "<system>s\n<user>a\nb\ndeep=True\n"

    run(scenario())


def test_cached_tokens_are_those_that_the_first_sequence_of_each_prompt_found() -> None:
    def script(call: ScriptedCall) -> None:
        index = int(call.request.id.partition("~")[2])
        call.give(Delta("x", (1,), num_cached_tokens=[16, 32, 0, 48][index]))
        call.say("", FinishReason.STOP)

    async def scenario() -> None:
        _, client = world(script)
        answer = await client.post(COMPLETIONS, {"prompt": ["a", "b"], "n": 2})
        assert answer.json()["usage"]["prompt_tokens_details"] == {"cached_tokens": 16}

    run(scenario())


def test_arrival_is_when_the_body_was_complete() -> None:
    async def scenario() -> None:
        clock = [1.0]
        engine, client = world(now=lambda: clock[0])
        exchange = client.open("POST", COMPLETIONS)
        exchange.upload(b'{"prompt": ', more=True)
        await asyncio.sleep(0)
        clock[0] = 2.0
        exchange.upload(b'"a"}')
        call = await engine.next_call()
        assert call.request.arrival_time == 2.0
        call.say("x", FinishReason.STOP)
        await exchange.finish()

    run(scenario())


def test_fields_that_change_nothing_are_accepted() -> None:
    async def scenario() -> None:
        _, client = world(lambda call: call.say("x", FinishReason.STOP))
        body = {
            "messages": HELLO,
            "user": "u",
            "store": False,
            "metadata": {"a": "b"},
            "service_tier": "auto",
            "parallel_tool_calls": True,
            "response_format": {"type": "text"},
            "tools": [],
            "tool_choice": "none",
            "top_k": -1,
            "stream_options": None,
            "logit_bias": None,
            "stop": None,
            "seed": None,
        }
        answer = await client.post(CHAT, body)
        assert answer.status == 200, answer.body

    run(scenario())
