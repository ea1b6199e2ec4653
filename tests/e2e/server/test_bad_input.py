"""Whatever a client sends, the answer is 4xx with a sentence that names the field, and the next request works."""

import json
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.server.scripted import MAX_MODEL_LEN, MODEL, VOCAB_SIZE, ByteTokenizer, Client, echo_backwards, run, world
from evenflow.core.errors import InvalidRequest
from evenflow.server.limits import ServerLimits
from evenflow.server.schema import ChatRequest, CompletionRequest, DetokenizeRequest, TokenizeRequest

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]
LONG = 10**4000

BAD_COMPLETIONS: list[tuple[dict[str, Any], str]] = [
    ({"prompt": None}, "prompt"),
    ({"prompt": ""}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [""]}, "prompt"),
    ({"prompt": ["a", ""]}, "prompt"),
    ({"prompt": [[]]}, "prompt"),
    ({"prompt": ["a", 1]}, "prompt"),
    ({"prompt": ["a", [1]]}, "prompt"),
    ({"prompt": [1, [1]]}, "prompt"),
    ({"prompt": [True]}, "prompt[0]"),
    ({"prompt": [1.5]}, "prompt[0]"),
    ({"prompt": {"text": "a"}}, "prompt"),
    ({"prompt": 5}, "prompt"),
    ({"prompt": [-1]}, "prompt"),
    ({"prompt": [VOCAB_SIZE]}, "prompt"),
    ({"prompt": [2**64]}, "prompt"),
    ({"prompt": [1] * MAX_MODEL_LEN}, "prompt"),
    ({"prompt": "a" * MAX_MODEL_LEN}, "prompt"),
    ({"prompt": ["a"] * 257}, "prompt"),
    ({"prompt": ["a"] * 200, "n": 3}, "n"),
    ({"model": 3}, "model"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": MAX_MODEL_LEN}, "max_tokens"),
    ({"max_tokens": LONG}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": "5"}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": 101}, "temperature"),
    ({"temperature": LONG}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 1.1}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"min_p": 2}, "min_p"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"frequency_penalty": -3}, "frequency_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"logit_bias": {"-1": 1}}, "logit_bias"),
    ({"logit_bias": {str(VOCAB_SIZE): 1}}, "logit_bias"),
    ({"logit_bias": {"1": 101}}, "logit_bias"),
    ({"logit_bias": {"1": "a"}}, "logit_bias[...]"),
    ({"logit_bias": [1]}, "logit_bias"),
    ({"seed": 2**63}, "seed"),
    ({"seed": -(2**63) - 1}, "seed"),
    ({"seed": 1.5}, "seed"),
    ({"n": 0}, "n"),
    ({"n": 129}, "n"),
    ({"n": LONG}, "n"),
    ({"best_of": 2}, "best_of"),
    ({"n": 2, "best_of": 3}, "best_of"),
    ({"suffix": "end"}, "suffix"),
    ({"logprobs": -1}, "logprobs"),
    ({"logprobs": 21}, "logprobs"),
    ({"logprobs": True}, "logprobs"),
    ({"min_tokens": 17}, "min_tokens"),
    ({"min_tokens": -1}, "min_tokens"),
    ({"min_tokens": 6, "max_tokens": 5}, "min_tokens"),
    ({"stop": ""}, "stop"),
    ({"stop": ["a", ""]}, "stop"),
    ({"stop": ["a"] * 17}, "stop"),
    ({"stop": "a" * 1025}, "stop"),
    ({"stop": [1]}, "stop[0]"),
    ({"stop_token_ids": [VOCAB_SIZE]}, "stop_token_ids"),
    ({"stop_token_ids": [-1]}, "stop_token_ids"),
    ({"stop_token_ids": [1] * 257}, "stop_token_ids"),
    ({"stop_token_ids": 1}, "stop_token_ids"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": {"usage": True}}, "stream_options.usage"),
    ({"stream": True, "stream_options": {"continuous_usage_stats": True}}, "stream_options.continuous_usage_stats"),
    ({"priority": 2**31}, "priority"),
    ({"priority": LONG}, "priority"),
    ({"cache_salt": "a" * 257}, "cache_salt"),
    ({"temprature": 1}, "temprature"),
    ({"messages": HELLO}, "messages"),
    ({"guided_json": {}}, "guided_json"),
    ({"use_beam_search": True}, "use_beam_search"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"allowed_token_ids": [1]}, "allowed_token_ids"),
    ({"prompt_logprobs": 1}, "prompt_logprobs"),
]

BAD_CHATS: list[tuple[dict[str, Any], str]] = [
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "hello"}, "messages"),
    ({"messages": ["hello"]}, "messages[0]"),
    ({"messages": [{}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [*HELLO, {"role": "tool", "content": "x"}]}, "messages[1].role"),
    ({"messages": [{"role": "user", "content": "x", "mood": "good"}]}, "messages[0].mood"),
    ({"messages": [{"role": "assistant", "content": "x"}]}, "messages"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        "messages[0].content[0].type",
    ),
    ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages[0].content[0].type"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "z": 1}]}]}, "messages[0].content[0].z"),
    ({"messages": [{"role": "user", "content": ["a"]}]}, "messages[0].content[0]"),
    ({"messages": [*HELLO, {"role": "assistant", "content": "x", "tool_calls": [{}]}]}, "messages[1].tool_calls"),
    ({"messages": HELLO * 4097}, "messages"),
    ({"messages": [{"role": "user", "content": "a" * MAX_MODEL_LEN}]}, "messages"),
    ({"prompt": "a"}, "prompt"),
    ({"max_tokens": MAX_MODEL_LEN}, "max_tokens"),
    ({"max_completion_tokens": MAX_MODEL_LEN}, "max_completion_tokens"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"max_completion_tokens": 1, "max_tokens": 2}, "max_tokens"),
    ({"logprobs": 5}, "logprobs"),
    ({"top_logprobs": 5}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"response_format": {"type": "json_schema"}}, "response_format"),
    ({"modalities": ["audio"]}, "modalities"),
    ({"reasoning_effort": "high"}, "reasoning_effort"),
    ({"chat_template": "{{ x }}"}, "chat_template"),
    ({"continue_final_message": True}, "continue_final_message"),
    ({"chat_template_kwargs": {"a": [1]}}, "chat_template_kwargs[...]"),
    ({"chat_template_kwargs": {"messages": "x"}}, "chat_template_kwargs"),
    ({"chat_template_kwargs": {"add_generation_prompt": False}}, "chat_template_kwargs"),
    ({"chat_template_kwargs": {f"k{i}": i for i in range(33)}}, "chat_template_kwargs"),
    ({"n": 129}, "n"),
]

NOT_JSON = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'"text"',
    b'{"prompt": "a"} x',
    b'{"prompt": "a",}',
    b'{"prompt": "a", "temperature": NaN}',
    b'{"prompt": "a", "temperature": Infinity}',
    b'{"prompt": "a", "temperature": -Infinity}',
    b'{"prompt": "a", "temperature": 1e999}',
    b'{"prompt": "a", "temperature": ' + b"9" * 400 + b"}",
    b'{"prompt": "a", "seed": ' + b"9" * 5000 + b"}",
    b'{"prompt": "\xff"}',
    b'{"prompt": "\xed\xa0\x80"}',
    b'{"prompt": "\\ud800"}',
    b'{"prompt": "\\ud800 and more text"}',
    b'{"prompt": "\\udc00\\ud800"}',
    b'{"\\ud800": 1}',
    b'{"\xff": 1}',
    b'{"prompt": "\\u00zz"}',
    b'{"prompt": "a\x00b"}',
    b'{"metadata": ' + b"[" * 100_000,
    b'{"metadata": ' + b'{"a":' * 100_000,
    '{"prompt": "a"}'.encode("utf-16"),
    b'\xef\xbb\xbf{"prompt": "a"}',
    b"prompt=a",
]


def said(body: bytes, status: int | None) -> tuple[str, str | None, str | None]:
    """Message, param and code of an error body, whose shape is checked."""
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error", (status, error)
    assert 10 < len(error["message"]) < 700
    return error["message"], error["param"], error["code"]


async def still_works(client: Client) -> None:
    answer = await client.post(COMPLETIONS, {"prompt": "abc"})
    assert answer.json()["choices"][0]["text"] == "cba"


@pytest.mark.parametrize(("fields", "param"), BAD_COMPLETIONS, ids=lambda value: str(value)[:60])
def test_a_bad_completion_is_refused_by_field(fields: dict[str, Any], param: str) -> None:
    async def scenario() -> None:
        engine, client = world(echo_backwards)
        answer = await client.post(COMPLETIONS, raw_json({"model": MODEL, "prompt": "a", **fields}))
        assert answer.status == 400, answer.body
        message, named, _ = said(answer.body, answer.status)
        assert named == param, message
        assert not engine.calls
        await still_works(client)

    run(scenario())


@pytest.mark.parametrize(("fields", "param"), BAD_CHATS, ids=lambda value: str(value)[:60])
def test_a_bad_chat_is_refused_by_field(fields: dict[str, Any], param: str) -> None:
    async def scenario() -> None:
        engine, client = world(echo_backwards)
        answer = await client.post(CHAT, raw_json({"model": MODEL, "messages": HELLO, **fields}))
        assert answer.status == 400, answer.body
        message, named, _ = said(answer.body, answer.status)
        assert named == param, message
        assert not engine.calls
        await still_works(client)

    run(scenario())


def raw_json(fields: dict[str, Any]) -> bytes:
    """JSON with integers longer than Python likes to print."""
    text = json.dumps({name: "LONG" if value is LONG else value for name, value in fields.items()})
    return text.replace('"LONG"', "1" + "0" * 4000).encode()


@pytest.mark.parametrize("body", NOT_JSON, ids=lambda body: repr(body[:40]))
def test_a_body_that_is_not_a_json_object_is_refused(body: bytes) -> None:
    async def scenario() -> None:
        _, client = world(echo_backwards)
        for path in (COMPLETIONS, CHAT, "/tokenize", "/detokenize"):
            answer = await client.post(path, body)
            assert answer.status == 400, answer.body
            said(answer.body, answer.status)
        await still_works(client)

    run(scenario())


@pytest.mark.parametrize(
    ("path", "field"), [(COMPLETIONS, "prompt"), (CHAT, "messages"), ("/tokenize", "prompt"), ("/detokenize", "tokens")]
)
@pytest.mark.parametrize("body", [b"", b" \r\n"])
def test_an_empty_body_is_answered_with_what_to_send(path: str, field: str, body: bytes) -> None:
    async def scenario() -> None:
        _, client = world(echo_backwards)
        answer = await client.post(path, body)
        message, param, _ = said(answer.body, answer.status)
        assert (answer.status, param) == (400, field)
        assert message == f"The body is empty; send a JSON object with {field} in it"

    run(scenario())


def test_a_text_that_the_tokenizer_does_not_take_is_refused_by_field() -> None:
    class Picky(ByteTokenizer):
        def encode(self, text: str, /, *, add_special_tokens: bool = True) -> list[int]:
            if "picky" in text:
                raise InvalidRequest("the text is not to my taste")
            return super().encode(text, add_special_tokens=add_special_tokens)

    async def scenario() -> None:
        _, client = world(echo_backwards, tokenizer=Picky())
        messages = [{"role": "user", "content": "picky"}]
        for path, body in (
            (COMPLETIONS, {"prompt": "picky"}),
            (CHAT, {"messages": messages}),
            ("/tokenize", {"prompt": "picky"}),
            ("/tokenize", {"messages": messages}),
        ):
            answer = await client.post(path, body)
            (field,) = body
            assert answer.status == 400
            assert said(answer.body, 400)[:2] == (f"{field}: the text is not to my taste", field)

    run(scenario())


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonx"])
def test_a_body_that_does_not_say_it_is_json_is_refused(content_type: str) -> None:
    async def scenario() -> None:
        _, client = world(echo_backwards)
        answer = await client.post(COMPLETIONS, {"prompt": "a"}, {"content-type": content_type})
        assert answer.status == 415
        assert said(answer.body, 415)[1] == "content-type"

    run(scenario())


def test_a_body_that_is_compressed_is_refused() -> None:
    async def scenario() -> None:
        _, client = world(echo_backwards)
        for encoding, status in (("gzip", 415), ("identity", 200), ("", 200)):
            answer = await client.post(COMPLETIONS, {"prompt": "a"}, {"content-encoding": encoding})
            assert answer.status == status
            assert status == 200 or said(answer.body, status)[1] == "content-encoding"

    run(scenario())


def test_a_charset_after_the_content_type_is_fine() -> None:
    async def scenario() -> None:
        _, client = world(echo_backwards)
        answer = await client.post(COMPLETIONS, {"prompt": "a"}, {"content-type": "Application/JSON; charset=utf-8"})
        assert answer.status == 200

    run(scenario())


def test_a_misspelt_field_is_answered_with_the_nearest_one() -> None:
    async def scenario() -> None:
        _, client = world(echo_backwards)
        answer = await client.post(COMPLETIONS, {"prompt": "a", "temprature": 1})
        assert "did you mean temperature?" in said(answer.body, 400)[0]
        answer = await client.post(COMPLETIONS, {"prompt": "a", "x" * 100_000: 1})
        assert said(answer.body, 400)[1] == "x" * 64

    run(scenario())


def test_an_overflow_of_the_context_has_its_own_code() -> None:
    async def scenario() -> None:
        _, client = world(echo_backwards)
        for fields in ({"prompt": [1] * 190, "max_tokens": 11}, {"prompt": [1] * 200}):
            answer = await client.post(COMPLETIONS, fields)
            assert said(answer.body, 400)[2] == "context_length_exceeded"
        assert (await client.post(COMPLETIONS, {"prompt": [97] * 190, "max_tokens": 10})).status == 200

    run(scenario())


def test_another_model_is_not_found() -> None:
    async def scenario() -> None:
        _, client = world(echo_backwards)
        for path, fields in (
            (COMPLETIONS, {"prompt": "a"}),
            (CHAT, {"messages": HELLO}),
            ("/tokenize", {"prompt": "a"}),
        ):
            answer = await client.post(path, {"model": "gpt-9", **fields})
            assert answer.status == 404
            message, param, code = said(answer.body, 404)
            assert (param, code) == ("model", "model_not_found")
            assert MODEL in message
        assert (await client.get("/v1/models/gpt-9")).status == 404

    run(scenario())


def test_a_prompt_that_no_token_is_long_enough_for_is_not_tokenised() -> None:
    async def scenario() -> None:
        engine, client = world(echo_backwards, max_chars_per_token=1)
        fits = await client.post(COMPLETIONS, {"prompt": "a" * (MAX_MODEL_LEN - 2), "max_tokens": 1})
        assert fits.status == 200
        answer = await client.post(COMPLETIONS, {"prompt": "a" * (MAX_MODEL_LEN + 1)})
        assert said(answer.body, 400)[1:] == ("prompt", "context_length_exceeded")
        assert "characters" in said(answer.body, 400)[0]
        answer = await client.post(CHAT, {"messages": [{"role": "user", "content": "a" * MAX_MODEL_LEN}]})
        assert said(answer.body, 400)[1:] == ("messages", "context_length_exceeded")
        assert "characters" in said(answer.body, 400)[0]
        assert len(engine.calls) == 1

    run(scenario())


def test_an_answer_of_too_many_logprobs_is_refused_before_it_runs() -> None:
    async def scenario() -> None:
        engine, client = world(echo_backwards, limits=ServerLimits(max_logprob_entries=120))
        few: list[tuple[str, dict[str, object]]] = [
            (COMPLETIONS, {"prompt": "a", "logprobs": 2, "max_tokens": 10, "n": 4}),
            (COMPLETIONS, {"prompt": "a" * 19, "logprobs": 2, "max_tokens": 20, "echo": True}),
            (CHAT, {"messages": HELLO, "logprobs": True, "top_logprobs": 5, "max_tokens": 20}),
            (CHAT, {"messages": HELLO, "logprobs": True, "max_tokens": 120}),
        ]
        for path, body in few:
            assert (await client.post(path, body)).status == 200
        num_calls = len(engine.calls)
        many: list[tuple[str, dict[str, object]]] = [
            *((path, {**body, "max_tokens": body["max_tokens"] + 1}) for path, body in few),  # type: ignore[operator]
            (COMPLETIONS, {"prompt": ["a"] * 8, "logprobs": 0}),
            (CHAT, {"messages": HELLO, "logprobs": True}),
        ]
        for path, body in many:
            answer = await client.post(path, body)
            assert answer.status == 400, body
            assert said(answer.body, 400)[1] == "logprobs"
        assert len(engine.calls) == num_calls

    run(scenario())


def test_a_text_is_tokenised_up_to_a_length() -> None:
    async def scenario() -> None:
        _, client = world(echo_backwards, limits=ServerLimits(max_tokenize_chars=60))
        assert (await client.post("/tokenize", {"prompt": "a" * 60})).status == 200
        for body, param in (
            ({"prompt": "a" * 61}, "prompt"),
            ({"messages": [{"role": "user", "content": "a" * 61}]}, "messages"),
        ):
            answer = await client.post("/tokenize", body)
            message, named, _ = said(answer.body, 400)
            assert named == param
            assert "this server takes at most 60" in message

    run(scenario())


def test_limits_can_be_set() -> None:
    async def scenario() -> None:
        limits = ServerLimits(max_n=2, max_prompts=1, max_logprobs=0, max_stop_strings=1, max_logit_bias=1)
        _, client = world(echo_backwards, limits=limits)
        for fields, param in (
            ({"n": 3}, "n"),
            ({"prompt": ["a", "b"]}, "prompt"),
            ({"logprobs": 1}, "logprobs"),
            ({"stop": ["a", "b"]}, "stop"),
            ({"logit_bias": {"1": 1, "2": 1}}, "logit_bias"),
        ):
            answer = await client.post(COMPLETIONS, {"prompt": "a", **fields})
            assert said(answer.body, 400)[1] == param

    run(scenario())


def test_paths_and_methods_that_do_not_exist_have_the_same_error_shape() -> None:
    async def scenario() -> None:
        _, client = world(echo_backwards)
        answer = await client.get("/v1/embeddings")
        assert (answer.status, said(answer.body, 404)[2]) == (404, "not_found")
        answer = await client.get(COMPLETIONS)
        assert (answer.status, said(answer.body, 405)[2]) == (405, "method_not_allowed")
        assert answer.headers["allow"] == "POST"
        assert said(answer.body, 405)[0] == "/v1/completions does not take GET; use POST"
        answer = await client.open("DELETE", "/admin/scheduling", {}).finish()
        assert said(answer.body, 405)[0] == "/admin/scheduling does not take DELETE; use GET or PATCH"
        assert answer.headers["allow"] == "GET, HEAD, PATCH"
        assert (await client.post("/v1/completions/", {"prompt": "a"})).status == 404

    run(scenario())


@pytest.mark.parametrize("request_id", ["", "a b", "a" * 129, "é", "a~0", "a\tb"])
def test_a_request_id_that_could_not_be_told_from_others_is_refused(request_id: str) -> None:
    async def scenario() -> None:
        _, client = world(echo_backwards)
        answer = await client.post(COMPLETIONS, {"prompt": "a"}, {"x-request-id": request_id})
        assert (answer.status, said(answer.body, 400)[1]) == (400, "x-request-id")

    run(scenario())


NAMES = sorted({name for fields, _ in BAD_COMPLETIONS + BAD_CHATS for name in fields} | {"user", "echo", "metadata"})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
PLAUSIBLE = st.one_of(
    st.integers(-2, 6),
    st.integers(-(2**70), 2**70),
    st.floats(-3, 3),
    st.sampled_from(["", "a", "text", "none", [], [1], ["a"], [[1, 2]], {}, {"1": 1}, {"type": "text"}, HELLO]),
    JSON,
)


PATHS = st.sampled_from([COMPLETIONS, CHAT, "/tokenize", "/detokenize"])


async def answer_to(path: str, body: object) -> int:
    """The status of the answer, which is no server error and after which the server still works."""
    _, client = world(echo_backwards)
    answer = await client.post(path, body)
    assert answer.status in (200, 400, 404), answer.body
    if answer.status != 200:
        said(answer.body, answer.status)
    await still_works(client)
    return answer.status


GOOD: dict[str, tuple[type[msgspec.Struct], dict[str, Any]]] = {
    COMPLETIONS: (CompletionRequest, {"prompt": "a"}),
    CHAT: (ChatRequest, {"messages": HELLO}),
    "/tokenize": (TokenizeRequest, {"prompt": "a"}),
    "/detokenize": (DetokenizeRequest, {"tokens": [1]}),
}


def test_no_json_object_gives_a_server_error() -> None:
    seen: Counter[int] = Counter()

    @settings(max_examples=150)
    @given(path=PATHS, body=st.dictionaries(st.sampled_from(NAMES), PLAUSIBLE, max_size=6), data=st.data())
    def one(path: str, body: dict[str, Any], data: st.DataObject) -> None:
        seen[run(answer_to(path, body))] += 1
        kind, good = GOOD[path]
        name = data.draw(st.sampled_from(kind.__struct_fields__))
        seen[run(answer_to(path, {**good, name: data.draw(PLAUSIBLE)}))] += 1

    one()
    assert seen[200] >= 5
    assert seen[400] >= 5


def test_no_bytes_give_a_server_error() -> None:
    @given(path=PATHS, body=st.binary(max_size=80) | JSON.map(lambda value: json.dumps(value).encode()))
    def one(path: str, body: bytes) -> None:
        assert run(answer_to(path, body)) == 400

    one()


def test_no_broken_byte_in_a_good_body_gives_a_server_error() -> None:
    good = b'{"prompt": "a", "stop": ["b"], "logit_bias": {"5": 1}, "n": 2, "stream": true}'
    seen: Counter[int] = Counter()

    @given(at=st.integers(0, len(good) - 1), byte=st.integers(0, 255))
    def one(at: int, byte: int) -> None:
        body = bytearray(good)
        body[at] = byte
        seen[run(answer_to(COMPLETIONS, bytes(body)))] += 1

    one()
    assert seen[200]
    assert seen[400]
