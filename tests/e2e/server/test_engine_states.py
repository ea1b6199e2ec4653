"""What clients, probes and scrapers are told while the engine starts, runs, drains, refuses and dies."""

from importlib.metadata import version

import pytest
from starlette.routing import Route

from e2e.server.scripted import (
    BOS,
    EOS,
    MAX_MODEL_LEN,
    MODEL,
    ByteTokenizer,
    Client,
    ScriptedEngine,
    echo_backwards,
    run,
    world,
)
from evenflow.core.errors import ContextOverflow, DuplicateRequest, EngineUnavailable, InvalidRequest, QueueFull
from evenflow.core.request import FinishReason
from evenflow.engine.api import Delta, EngineState
from evenflow.server.api_keys import ApiKeys
from evenflow.server.app import answer_nobody, create_app
from evenflow.server.tokens import PART_ITEMS

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    ("state", "health", "ready", "serves"),
    [
        (EngineState.STARTING, 200, 503, 503),
        (EngineState.READY, 200, 200, 200),
        (EngineState.DRAINING, 200, 503, 503),
        (EngineState.DEAD, 503, 503, 503),
    ],
)
def test_each_state_is_told_to_probes_and_clients(state: EngineState, health: int, ready: int, serves: int) -> None:
    async def scenario() -> None:
        engine, client = world(echo_backwards)
        engine.state = state
        engine.death_reason = "killed by signal 9" if state is EngineState.DEAD else None
        answer = await client.get("/health")
        assert (answer.status, answer.json()["engine"]) == (health, state.value)
        assert answer.json()["reason"] == engine.death_reason
        answer = await client.get("/ready")
        assert (answer.status, answer.json()) == (ready, {"ready": ready == 200, "engine": state.value})
        for path, body in (
            (COMPLETIONS, {"prompt": "abc"}),
            (CHAT, {"messages": HELLO}),
            ("/tokenize", {"prompt": "a"}),
        ):
            answer = await client.post(path, body)
            assert answer.status == serves
            if serves == 503:
                assert state is EngineState.DEAD or int(answer.headers["retry-after"]) >= 1
                assert answer.json()["error"]["type"] == "server_error"
                if state is EngineState.DEAD:
                    assert "killed by signal 9" in answer.json()["error"]["message"]

    run(scenario())


def test_a_dead_engine_asks_nobody_to_try_again() -> None:
    async def scenario() -> None:
        engine, client = world()
        waiting = client.open("POST", COMPLETIONS)
        waiting.upload(b'{"prompt": "abc"}')
        await engine.next_call()
        engine.die("killed by signal 9")
        answers = [
            await waiting.finish(),
            await client.post(COMPLETIONS, {"prompt": "abc"}),
            await client.get("/ready"),
        ]
        assert [(answer.status, answer.headers.get("retry-after")) for answer in answers] == [(503, None)] * 3

    run(scenario())


def test_a_draining_server_refuses_without_waiting_for_the_body() -> None:
    async def scenario() -> None:
        engine, client = world(echo_backwards)
        engine.state = EngineState.DRAINING
        exchange = client.open("POST", COMPLETIONS)
        assert (await exchange.finish()).status == 503

    run(scenario())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (InvalidRequest("prompt is odd", param="prompt"), 400, "invalid_value"),
        (ContextOverflow("too long", param="prompt"), 400, "context_length_exceeded"),
        (DuplicateRequest("in use"), 400, "duplicate_request_id"),
        (QueueFull("come back", retry_after_seconds=7), 429, "queue_full"),
        (EngineUnavailable("draining"), 503, "engine_unavailable"),
    ],
)
def test_what_the_engine_refuses_is_an_http_error_also_for_streams(
    stream: bool, error: Exception, status: int, code: str
) -> None:
    async def scenario() -> None:
        _, client = world(lambda call: call.fail(error))
        answer = await client.post(COMPLETIONS, {"prompt": "a", "stream": stream, "n": 2})
        assert (answer.status, answer.json()["error"]["code"]) == (status, code)
        if status == 429:
            assert answer.headers["retry-after"] == "7"

    run(scenario())


@pytest.mark.parametrize(("path", "body"), [(COMPLETIONS, {"prompt": "a", "n": 2}), (CHAT, {"messages": HELLO})])
def test_an_engine_that_dies_ends_open_streams_with_an_error_event(path: str, body: dict[str, object]) -> None:
    async def scenario() -> None:
        engine, client = world()
        exchange = client.send(path, {**body, "stream": True})
        call = await engine.next_call()
        call.say("x")
        await exchange.next_bytes()
        engine.die("killed by signal 9")
        await exchange.finish()
        last = exchange.events()[-1]
        assert last["error"]["message"] == "killed by signal 9"
        assert last["error"]["code"] == "engine_unavailable"
        assert exchange.complete
        for call in engine.calls:
            await call.closed.wait()
        assert (await client.get("/health")).json()["reason"] == "killed by signal 9"

    run(scenario())


def test_an_engine_that_dies_ends_whole_answers_with_an_error() -> None:
    async def scenario() -> None:
        engine, client = world()
        exchange = client.send(COMPLETIONS, {"prompt": "a", "n": 2})
        (await engine.next_call()).say("x")
        await engine.next_call()
        engine.die("killed by signal 9")
        assert (await exchange.finish()).status == 503
        assert exchange.json()["error"]["message"] == "killed by signal 9"

    run(scenario())


@pytest.mark.parametrize(
    ("reason", "status", "code"),
    [(FinishReason.ABORT, 503, "engine_unavailable"), (FinishReason.ERROR, 500, "internal_error")],
)
def test_an_ending_that_is_no_answer_is_an_error(reason: FinishReason, status: int, code: str) -> None:
    async def scenario() -> None:
        engine, client = world()
        whole = client.send(COMPLETIONS, {"prompt": "a"})
        call = await engine.next_call()
        call.say("x")
        call.give(Delta("", (), reason))
        assert (await whole.finish()).status == status
        assert whole.json()["error"]["code"] == code
        streamed = client.send(COMPLETIONS, {"prompt": "a", "stream": True})
        call = await engine.next_call()
        call.say("x")
        await streamed.next_bytes()
        call.give(Delta("", (), reason))
        assert (await streamed.finish()).events()[-1]["error"]["code"] == code

    run(scenario())


def test_a_fault_of_our_own_says_nothing_of_itself_and_ends_the_stream(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        engine, client = world()
        exchange = client.send(COMPLETIONS, {"prompt": "a", "stream": True})
        call = await engine.next_call()
        call.say("x")
        await exchange.next_bytes()
        call.fail(RuntimeError("secret detail"))
        last = (await exchange.finish()).events()[-1]
        assert last["error"]["code"] == "internal_error"
        assert "secret" not in last["error"]["message"]

    run(scenario())
    assert "a stream failed" in caplog.text


def test_a_fault_of_our_own_is_a_500_that_says_nothing_of_itself_or_of_the_prompt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        _, client = world(lambda call: call.fail(RuntimeError("secret detail")))
        exchange = client.send(COMPLETIONS, {"prompt": "my prompt"})
        with pytest.raises(RuntimeError):  # for the log of the server that runs the app
            await exchange.finish()
        assert exchange.status == 500
        assert exchange.json()["error"]["code"] == "internal_error"
        assert b"secret" not in exchange.body

    run(scenario())
    assert "my prompt" not in caplog.text


def test_models_are_listed_and_found() -> None:
    async def scenario() -> None:
        _, client = world()
        (model,) = (await client.get("/v1/models")).json()["data"]
        assert (model["id"], model["object"], model["max_model_len"]) == (MODEL, "model", MAX_MODEL_LEN)
        assert (await client.get(f"/v1/models/{MODEL}")).json() == model

    run(scenario())


def test_a_model_name_may_have_slashes() -> None:
    async def scenario() -> None:
        client = Client(create_app(ScriptedEngine(), ByteTokenizer(), served_model_name="org/model"))
        assert (await client.get("/v1/models/org/model")).json()["id"] == "org/model"

    run(scenario())


def test_tokenize_and_detokenize_are_inverse() -> None:
    async def scenario() -> None:
        _, client = world()
        answer = await client.post("/tokenize", {"prompt": "hé", "return_token_strs": True})
        assert answer.json() == {
            "count": 4,
            "max_model_len": MAX_MODEL_LEN,
            "tokens": [BOS, 104, 195, 169],
            "token_strs": ["<256>", "<104>", "<195>", "<169>"],
        }
        answer = await client.post("/detokenize", {"tokens": [104, 195, 169, EOS]})
        assert answer.json() == {"prompt": "hé</s>"}
        answer = await client.post("/tokenize", {"prompt": "h", "add_special_tokens": False})
        assert answer.json()["tokens"] == [104]
        answer = await client.post("/tokenize", {"messages": HELLO, "add_generation_prompt": False})
        assert answer.json()["tokens"] == list(b"<user>hello\n")
        # Longer than the context: that is what one asks for.
        answer = await client.post("/tokenize", {"prompt": "a" * 1000})
        assert answer.json()["count"] == 1001

    run(scenario())


@pytest.mark.parametrize("spell", [False, True])
def test_an_answer_of_many_tokens_says_the_same_in_parts(spell: bool) -> None:
    async def scenario() -> None:
        _, client = world()
        letters = "abc" * PART_ITEMS
        answer = await client.post("/tokenize", {"prompt": letters, "return_token_strs": spell})
        assert answer.json() == {
            "count": len(letters) + 1,
            "max_model_len": MAX_MODEL_LEN,
            "tokens": [BOS, *letters.encode()],
            "token_strs": ["<256>", *(f"<{byte}>" for byte in letters.encode())] if spell else None,
        }

    run(scenario())


def test_the_root_says_what_there_is() -> None:
    async def scenario() -> None:
        more = [Route("/more", answer_nobody, methods=["GET"])]
        engine, tokenizer = ScriptedEngine(), ByteTokenizer()
        app = create_app(engine, tokenizer, served_model_name=MODEL, api_keys=ApiKeys.one("secret"), extra_routes=more)
        client = Client(app)
        answer = await client.get("/")
        assert answer.status == 200
        body = answer.json()
        assert (body["name"], body["version"]) == ("evenflow", version("evenflow"))
        assert {"POST /v1/chat/completions", "GET /v1/models", "GET /metrics", "GET /more"} <= set(body["endpoints"])
        assert not [line for line in body["endpoints"] if line.startswith("HEAD")]
        assert (await client.post("/", {})).json()["error"]["code"] == "method_not_allowed"

    run(scenario())


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": HELLO}, "prompt"),
        ("/tokenize", {"prompt": ["a"]}, "prompt"),
        ("/tokenize", {"text": "a"}, "text"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": [10**30]}, "tokens"),
        ("/detokenize", {"tokens": "a"}, "tokens"),
        ("/detokenize", {"tokens": [1] * (256 * 1024 + 1)}, "tokens"),
    ],
)
def test_what_cannot_be_tokenised_or_detokenised_is_refused(path: str, body: dict[str, object], param: str) -> None:
    async def scenario() -> None:
        _, client = world()
        answer = await client.post(path, body)
        assert (answer.status, answer.json()["error"]["param"]) == (400, param)

    run(scenario())


def test_a_model_without_a_chat_template_points_to_completions() -> None:
    class Plain(ByteTokenizer):
        chat_template = None

    async def scenario() -> None:
        _, client = world(echo_backwards, tokenizer=Plain())
        answer = await client.post(CHAT, {"messages": HELLO})
        assert (answer.status, answer.json()["error"]["param"]) == (400, "messages")
        assert "/v1/completions" in answer.json()["error"]["message"]

    run(scenario())


def test_metrics_and_version() -> None:
    async def scenario() -> None:
        _, client = world(render_metrics=lambda: (b"up 1\n", "text/plain; version=1.0.0"))
        answer = await client.get("/metrics")
        assert (answer.body, answer.headers["content-type"]) == (b"up 1\n", "text/plain; version=1.0.0; charset=utf-8")
        assert set((await client.get("/version")).json()) == {"version"}

    run(scenario())


KEY = "s3cret-é"


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (None, 401),
        ("", 401),
        ("Bearer", 401),
        ("Bearer wrong", 401),
        (f"Basic {KEY}", 401),
        (KEY, 401),
        (f"Bearer {KEY}x", 401),
        (f"bearer  {KEY}", 200),
        (f"Bearer {KEY}", 200),
    ],
)
def test_everything_but_probes_needs_the_key(authorization: str | None, status: int) -> None:
    async def scenario() -> None:
        engine, client = world(echo_backwards, api_keys=ApiKeys.one(KEY))
        headers = {} if authorization is None else {"authorization": authorization.encode().decode("latin-1")}
        for path, body in (
            (COMPLETIONS, {"prompt": "a"}),
            ("/tokenize", {"prompt": "a"}),
            ("/detokenize", {"tokens": [1]}),
        ):
            answer = await client.post(path, body, headers)
            assert answer.status == status
            if status == 401:
                assert answer.json()["error"]["code"] == "invalid_api_key"
        for path in ("/v1/models", "/metrics"):
            assert (await client.get(path, headers)).status == status
        for path in ("/health", "/ready", "/version"):
            assert (await client.get(path, headers)).status == 200
        assert (await client.get("/nowhere", headers)).status == (401 if status == 401 else 404)
        assert bool(engine.calls) == (status == 200)

    run(scenario())


def test_a_probe_may_have_an_id_of_any_form() -> None:
    async def scenario() -> None:
        _, client = world()
        answer = await client.get("/health", {"x-request-id": "a b/c="})
        assert answer.status == 200
        assert answer.headers["x-request-id"] != "a b/c="

    run(scenario())


def test_browsers_are_not_told_that_other_sites_may_call() -> None:
    async def scenario() -> None:
        _, client = world(echo_backwards)
        answer = await client.post(COMPLETIONS, {"prompt": "a"}, {"origin": "http://elsewhere.example"})
        assert not [name for name in answer.headers if name.startswith("access-control")]

    run(scenario())
