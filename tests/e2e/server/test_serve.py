"""The life of a server process: signals, the drain, and what it exits with."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from e2e.server import serve_scripted
from e2e.server.scripted import PATIENCE_SECONDS
from evenflow.core.errors import ConfigError
from evenflow.server.binding import ServeSettings, bind, check_binding
from evenflow.server.encoding import SHORT_CHARS

TESTS = Path(__file__).parents[2]


class ServerProcess:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def status(self) -> int:
        return self.process.wait(PATIENCE_SECONDS)


@contextmanager
def server_process(kind: str, *, port: int = 0, timeout: float = PATIENCE_SECONDS) -> Iterator[ServerProcess]:
    command = [sys.executable, serve_scripted.__file__, str(port), str(timeout), kind]
    python_path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": python_path}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield ServerProcess(process)
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_ends_at_a_signal_with_status_0(number: int) -> None:
    with server_process("stubborn") as server:
        url = server.line()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url)
        assert httpx.get(f"{url}/ready").status_code == 200
        server.signal(number)
        assert server.line() == "draining"
        assert server.status() == 0


def test_a_server_whose_engine_died_ends_with_a_status_that_says_so() -> None:
    with server_process("mortal") as server:
        url = server.line()
        assert httpx.post(f"{url}/v1/completions", json={"prompt": "abc"}).status_code == 503
        assert httpx.get(f"{url}/health").status_code == 503
        server.signal(signal.SIGTERM)
        assert server.status() == 1


def test_a_signal_refuses_new_requests_and_lets_streams_finish() -> None:
    with server_process("finishing") as server, httpx.Client() as client:
        url = server.line()
        body = {"prompt": "wait", "stream": True}
        with client.stream("POST", f"{url}/v1/completions", json=body) as answer:
            lines = answer.iter_lines()
            assert '"text":"x"' in next(lines)
            server.signal(signal.SIGTERM)
            assert server.line() == "draining"
            refused = httpx.post(f"{url}/v1/completions", json={"prompt": "abc"})
            assert refused.status_code == 503
            assert int(refused.headers["retry-after"]) >= 1
            assert httpx.get(f"{url}/ready").status_code == 503
            assert httpx.get(f"{url}/health").status_code == 200
            server.say("go on")
            rest = [line for line in lines if line]
        assert '"text":"y"' in rest[0]
        assert rest[-1] == "data: [DONE]"
        assert server.status() == 0


def test_what_is_not_done_at_the_timeout_gets_an_error_event() -> None:
    with server_process("stubborn", timeout=0) as server, httpx.Client() as client:
        url = server.line()
        with client.stream("POST", f"{url}/v1/completions", json={"prompt": "wait", "stream": True}) as answer:
            lines = answer.iter_lines()
            assert '"text":"x"' in next(lines)
            server.signal(signal.SIGTERM)
            rest = [line for line in lines if line]
        assert len(rest) == 1
        assert '"code":"engine_unavailable"' in rest[0]
        assert server.status() == 0


def connected(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)


def to_the_end(connection: socket.socket) -> bytes:
    received = b""
    while piece := connection.recv(65536):
        received += piece
    return received


@pytest.mark.parametrize("path", [b"/v1/completions", b"/tokenize"])
def test_a_body_that_is_not_complete_at_a_signal_is_refused_at_once(
    path: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with server_process("stubborn") as server, connected(server.line()) as connection:
        head = b"content-type: application/json\r\ncontent-length: 1000\r\nexpect: 100-continue\r\n\r\n"
        connection.sendall(b"POST " + path + b" HTTP/1.1\r\nhost: x\r\n" + head + b'{"prompt": ')
        assert connection.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        server.signal(signal.SIGTERM)
        answer = to_the_end(connection)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"connection: close\r\n" in answer
        assert b"The server is shutting down" in answer
        assert server.line() == "draining"
        assert server.status() == 0
    assert capfd.readouterr().err == ""


def test_a_client_that_does_not_read_does_not_keep_the_server(capfd: pytest.CaptureFixture[str]) -> None:
    with server_process("stubborn", timeout=0) as server, connected(server.line()) as connection:
        body = b'{"prompt": "flood", "stream": true}'
        head = b"POST /v1/completions HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        connection.sendall(head % len(body) + body)
        assert connection.recv(1) == b"H"
        server.signal(signal.SIGTERM)
        assert server.line() == "draining"
        assert server.status() == 0
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_at_once(number: int) -> None:
    with server_process("stubborn") as server, httpx.Client() as client:
        url = server.line()
        with client.stream("POST", f"{url}/v1/completions", json={"prompt": "wait", "stream": True}) as answer:
            assert '"text":"x"' in next(answer.iter_lines())
            server.signal(signal.SIGTERM)
            assert server.line() == "draining"
            server.signal(number)
            assert server.status() == 128 + number


def test_a_second_signal_waits_for_no_tokenizer() -> None:
    with server_process("stubborn") as server:
        host, port = server.line().removeprefix("http://").split(":")
        body = b'{"prompt": "' + b"a" * (SHORT_CHARS + 1) + b'"}'
        head = b"POST /v1/completions HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as connection:
            connection.sendall(head % len(body) + body)
            assert server.line() == "tokenising"
            server.signal(signal.SIGTERM)
            assert server.line() == "draining"
            server.signal(signal.SIGTERM)
            assert server.status() == 128 + signal.SIGTERM


def test_a_server_that_still_loads_answers_probes_and_ends_at_a_signal() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with server_process("loading", port=port) as server:
        assert server.line() == "loading"
        url = f"http://127.0.0.1:{port}"
        assert httpx.get(f"{url}/health").json()["engine"] == "starting"
        assert httpx.get(f"{url}/ready").status_code == 503
        assert httpx.post(f"{url}/v1/completions", json={"prompt": "a"}).status_code == 503
        server.signal(signal.SIGTERM)
        assert server.status() == 0


def test_an_engine_that_cannot_start_is_raised() -> None:
    with server_process("unloadable") as server:
        assert server.line() == "model.safetensors is broken"
        assert server.status() == 2


def test_a_taken_port_is_said_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with server_process("stubborn", port=port) as server:
            assert f"Cannot listen on 127.0.0.1 port {port}" in server.line()
            assert server.status() == 2


@pytest.mark.parametrize("host", ["no.such.host.invalid", "300.1.1.1"])
def test_a_host_that_is_not_there_is_said(host: str) -> None:
    with pytest.raises(ConfigError, match=host):
        bind(ServeSettings(host=host))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_this_machine_needs_no_key(host: str) -> None:
    check_binding(host, has_keys=False, allow_unauthenticated=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.1", "example.org", "127.0.0.1.example.org"])
def test_other_machines_need_a_key_or_a_word(host: str) -> None:
    check_binding(host, has_keys=True, allow_unauthenticated=False)
    check_binding(host, has_keys=False, allow_unauthenticated=True)
    with pytest.raises(ConfigError, match=r"EVENFLOW_API_KEY.*--api-key.*--allow-unauthenticated"):
        check_binding(host, has_keys=False, allow_unauthenticated=False)


@pytest.mark.parametrize(("port", "timeout"), [(-1, 1.0), (65536, 1.0), (80, -1.0), (80, float("nan"))])
def test_settings_out_of_range_are_refused(port: int, timeout: float) -> None:
    with pytest.raises(ConfigError):
        ServeSettings(port=port, shutdown_timeout_seconds=timeout)
