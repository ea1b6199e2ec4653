"""Bytes on a socket that no HTTP library would send."""

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from e2e.server.running import RunningServer, running
from e2e.server.scripted import PATIENCE_SECONDS, ScriptedCall, ScriptedEngine, app_for, echo_backwards
from evenflow.core.request import FinishReason
from evenflow.engine.api import Delta
from evenflow.server.http_protocol import MAX_HEAD_BYTES, BoundedHttp
from evenflow.server.limits import ServerLimits


def script(call: ScriptedCall) -> None:
    match call.prompt:
        case "wait":
            call.say("x")
        case "flood":
            for _ in range(2000):
                call.give(Delta("x" * 10_000, (1,)))
        case _:
            echo_backwards(call)


@dataclass(frozen=True, slots=True)
class World:
    engine: ScriptedEngine
    server: RunningServer

    def call_for(self, prompt: str) -> ScriptedCall:
        """The latest call with this prompt, once there is one."""

        async def find() -> ScriptedCall:
            while True:
                call = await self.engine.next_call()
                if call.prompt == prompt:
                    return call

        return asyncio.run_coroutine_threadsafe(find(), self.server.loop).result(PATIENCE_SECONDS)

    def wait_until_closed(self, call: ScriptedCall) -> None:
        asyncio.run_coroutine_threadsafe(call.closed.wait(), self.server.loop).result(PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    engine = ScriptedEngine(script)
    with running(engine, app_for(engine, limits=ServerLimits(max_body_bytes=100_000))) as server:
        yield World(engine, server)


@pytest.fixture
def server(world: World) -> RunningServer:
    return world.server


def connect(server: RunningServer) -> socket.socket:
    return socket.create_connection((server.host, server.port), timeout=PATIENCE_SECONDS)


def read_answer(connection: socket.socket) -> tuple[int, dict[str, object]]:
    """One answer with a JSON body of declared length."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += (piece := connection.recv(65536))
        assert piece, received
    head, _, body = received.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    while len(body) < int(fields[b"content-length"]):
        body += connection.recv(65536)
    return int(head.split()[1]), json.loads(body)


def post(body: bytes, *extra: bytes) -> bytes:
    head = [b"POST /v1/completions HTTP/1.1", b"host: x", b"content-type: application/json", *extra]
    return b"\r\n".join([*head, b"", body])


def still_works(server: RunningServer) -> None:
    with connect(server) as connection:
        connection.sendall(post(b'{"prompt": "abc"}', b"content-length: 17"))
        status, body = read_answer(connection)
        assert status == 200, body


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"HELLO\r\n\r\n",
        b"GET /v1/models HTTP/9.9\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nhost: x\r\n\r\n",
        post(b"", b"content-length: 1e9"),
        post(b"", b"content-length: -1"),
        post(b"", b"content-length: 5", b"content-length: 6"),
        post(b"zz\r\n", b"transfer-encoding: chunked"),
        post(b"", b"bad header name: x"),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_what_is_not_http_gets_our_error_shape(server: RunningServer, sent: bytes) -> None:
    with connect(server) as connection:
        connection.sendall(sent)
        status, body = read_answer(connection)
        assert status == 400
        assert set(body) == {"error"}
    still_works(server)


@pytest.mark.parametrize(
    ("sent", "fault"),
    [
        (b"BREW /coffee HTTP/1.1\r\nhost: x\r\n\r\n", "method"),
        (post(b"", b"content-length: 5", b"content-length: 6"), "Content-Length"),
        (post(b"zz\r\n", b"transfer-encoding: chunked"), "chunk"),
        (b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n", "url"),
    ],
    ids=["method", "length", "chunk", "path"],
)
def test_what_is_not_http_is_told_what_it_has_wrong(server: RunningServer, sent: bytes, fault: str) -> None:
    with connect(server) as connection:
        connection.sendall(sent)
        _, body = read_answer(connection)
        assert fault in str(body["error"])


def test_a_head_that_is_too_long_is_refused_though_it_comes_in_one_piece(server: RunningServer) -> None:
    for long in (
        b"GET /health?" + b"x" * MAX_HEAD_BYTES + b" HTTP/1.1",
        b"GET / HTTP/1.1\r\na: " + b"x" * MAX_HEAD_BYTES,
    ):
        with connect(server) as connection:
            connection.sendall(long + b"\r\nhost: x\r\n\r\n")
            assert read_answer(connection)[0] == 431
    still_works(server)


@pytest.mark.parametrize("piece", [b"x" * 1000, b"a: b\r\n" * 200])
def test_a_head_that_never_ends_is_cut_off(server: RunningServer, piece: bytes) -> None:
    with connect(server) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nlong: ")
        try:
            for _ in range(64 * MAX_HEAD_BYTES // len(piece)):
                connection.sendall(piece)
        except ConnectionError:
            pass  # cut off while sending: the answer may be lost with the connection
        else:
            raise AssertionError("the server took it all")
    still_works(server)


def test_headers_of_a_usual_size_are_fine(server: RunningServer) -> None:
    with connect(server) as connection:
        connection.sendall(post(b'{"prompt": "abc"}', b"content-length: 17", b"cookie: " + b"x" * 16_000))
        assert read_answer(connection)[0] == 200


def test_a_chunked_body_is_refused_at_the_byte_that_is_too_many(server: RunningServer) -> None:
    with connect(server) as connection:
        connection.sendall(post(b"", b"transfer-encoding: chunked"))
        for _ in range(11):
            connection.sendall(b"2710\r\n" + b" " * 10_000 + b"\r\n")
        # The body has not ended, and never will.
        status, body = read_answer(connection)
        assert status == 413, body
    still_works(server)


def test_a_body_announced_too_large_is_refused_before_it_is_sent(server: RunningServer) -> None:
    with connect(server) as connection:
        connection.sendall(post(b"", b"content-length: 100001", b"expect: 100-continue"))
        assert read_answer(connection)[0] == 413


def test_requests_on_one_connection_are_answered_in_turn(server: RunningServer) -> None:
    with connect(server) as connection:
        for _ in range(3):
            connection.sendall(post(b'{"prompt": "abc"}', b"content-length: 17"))
            assert read_answer(connection)[0] == 200


def send_prompt(connection: socket.socket, prompt: str, *, stream: bool) -> None:
    body = json.dumps({"prompt": prompt, "stream": stream}).encode()
    connection.sendall(post(body, b"content-length: %d" % len(body)))


@pytest.mark.parametrize("stream", [False, True])
def test_a_closed_connection_frees_its_request(world: World, stream: bool) -> None:
    with connect(world.server) as connection:
        send_prompt(connection, "wait", stream=stream)
        call = world.call_for("wait")
        if stream:
            assert connection.recv(65536)
        assert not call.closed.is_set()
    world.wait_until_closed(call)
    still_works(world.server)


def test_a_client_that_does_not_read_holds_up_nobody_and_can_leave(world: World) -> None:
    with connect(world.server) as connection:
        send_prompt(connection, "flood", stream=True)
        call = world.call_for("flood")
        still_works(world.server)
        assert not call.closed.is_set()
    world.wait_until_closed(call)


def test_trailers_that_never_end_are_cut_off(server: RunningServer) -> None:
    with connect(server) as connection:
        connection.sendall(b"POST /health HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n")
        try:
            for _ in range(4096):
                connection.sendall(b"a: " + b"b" * 60_000 + b"\r\n")
        except ConnectionError:
            pass
        else:
            raise AssertionError("the server took it all")
    still_works(server)


def read_to_the_end(connection: socket.socket) -> bytes:
    received = b""
    while piece := connection.recv(65536):
        received += piece
    return received


def test_what_follows_a_request_and_is_not_http_is_not_answered_into_its_answer(world: World) -> None:
    with connect(world.server) as connection:
        send_prompt(connection, "wait", stream=True)
        call = world.call_for("wait")
        received = connection.recv(65536)
        connection.sendall(b"\x00\x01\r\n\r\n" + b"more of it")
        still_works(world.server)
        world.server.loop.call_soon_threadsafe(call.say, "y", FinishReason.STOP)
        received += read_to_the_end(connection)
    assert received.count(b"HTTP/1.1") == 1
    assert b'"text":"y"' in received
    assert received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def test_clients_that_speak_no_http_are_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    engine = ScriptedEngine(script)
    with running(engine, app_for(engine)) as server:
        for _ in range(3):
            with connect(server) as connection:
                connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
                assert read_answer(connection)[0] == 400
    assert [record.name for record in caplog.records] == ["evenflow.server.http_protocol"]
    assert caplog.messages[0].startswith("127.0.0.1 sent a request that cannot be read: This is not HTTP/1.1")


class Hurried(BoundedHttp):
    head_seconds = 1.0


def test_a_head_has_its_time_and_what_comes_after_it_has_not(caplog: pytest.LogCaptureFixture) -> None:
    engine = ScriptedEngine(script)
    with running(engine, app_for(engine), http=Hurried) as server:
        world = World(engine, server)
        with ExitStack() as stack:
            stream, upload, silent, half, answered = (stack.enter_context(connect(server)) for _ in range(5))
            half.sendall(b"GET /health HTTP/1.1\r\nhost:")
            send_prompt(stream, "wait", stream=True)
            upload.sendall(post(b'{"prompt": ', b"content-length: 17"))
            answered.sendall(b"POST /health HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n")
            assert read_answer(answered)[0] == 405
            answered.sendall(b"the rest, or some of it")
            call = world.call_for("wait")
            assert read_to_the_end(silent) == b""
            assert read_to_the_end(answered) == b""
            status, body = read_answer(half)
            assert (status, half.recv(1)) == (408, b""), body
            # These two have been at it for as long.
            upload.sendall(b'"abc"}')
            assert read_answer(upload)[0] == 200
            server.loop.call_soon_threadsafe(call.say, "y", FinishReason.STOP)
            received = b""
            while b"[DONE]" not in received:
                received += (piece := stream.recv(65536))
                assert piece, received
    assert len(caplog.records) == 1


def test_a_trailer_is_no_header(server: RunningServer) -> None:
    with connect(server) as connection:
        body = b'{"prompt": "a", "max_tokens": 1}'
        head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
        chunk = b"%x\r\n%s\r\n0\r\ncontent-type: application/json\r\n\r\n" % (len(body), body)
        connection.sendall(head + chunk)
        assert read_answer(connection)[0] == 415


def test_an_offer_of_http2_is_not_taken_up_and_loses_nothing(server: RunningServer) -> None:
    with connect(server) as connection:
        offer = (b"connection: Upgrade, HTTP2-Settings", b"upgrade: h2c", b"http2-settings: AAMAAABkAAQAAP__")
        connection.sendall(post(b'{"prompt": "abc"}', b"content-length: 17", *offer))
        assert read_answer(connection)[0] == 200
