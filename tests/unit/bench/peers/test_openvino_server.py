"""The thin server around OpenVINO: its HTTP, with an engine process that a thread of the test plays."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from multiprocessing import Pipe

import pytest

from evenflow.bench.peers.openvino_server import Front, read_request


class Letters:
    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(chr(token) for token in tokens)


@asynccontextmanager
async def serving() -> AsyncIterator[int]:
    """The port. Every request gets the letters from `a` on, two in the first step and then one a step."""
    ours, theirs = Pipe()

    def engine() -> None:
        while (order := theirs.recv()) is not None:
            number, _, max_tokens = order
            steps = [[97, 98], *([99 + index] for index in range(max_tokens - 2))]
            for index, tokens in enumerate(steps):
                theirs.send([(number, tokens, index == len(steps) - 1)])
        theirs.send(None)

    worker = threading.Thread(target=engine)
    worker.start()
    front = Front(ours, Letters(), asyncio.get_running_loop())
    server = await asyncio.start_server(front.connected, "127.0.0.1")
    try:
        async with server:
            yield server.sockets[0].getsockname()[1]
    finally:
        ours.send(None)
        worker.join()
        front.join()


async def ask(port: int, request: bytes) -> tuple[str, str]:
    """Status line and body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition("\r\n\r\n")
    return head.splitlines()[0], body


def post(path: str, body: object) -> bytes:
    content = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content


def test_a_completion_is_streamed_with_its_usage() -> None:
    async def main() -> None:
        async with serving() as port:
            status, body = await ask(port, post("/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 4}))
            assert status == "HTTP/1.1 200 OK"
            *events, done = [line.removeprefix("data: ") for line in body.splitlines() if line]
            chunks = [json.loads(each) for each in events]
            assert done == "[DONE]"
            assert [(c["text"], c["finish_reason"]) for chunk in chunks for c in chunk["choices"]] == [
                ("ab", None),
                ("c", None),
                ("d", "length"),
            ]
            assert chunks[-1]["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}

    asyncio.run(main())


@pytest.mark.parametrize(("path", "status"), [("/health", "HTTP/1.1 200 OK"), ("/other", "HTTP/1.1 404 Not Found")])
def test_other_paths(path: str, status: str) -> None:
    async def main() -> None:
        async with serving() as port:
            assert await ask(port, f"GET {path} HTTP/1.1\r\n\r\n".encode()) == (status, "{}")

    asyncio.run(main())


def test_requests_at_once_do_not_mix() -> None:
    async def main() -> None:
        async with serving() as port:
            bodies = [{"prompt": [1], "max_tokens": count} for count in (3, 9, 5)]
            answers = await asyncio.gather(*(ask(port, post("/v1/completions", body)) for body in bodies))
            assert [body.count("data: {") - 1 for _, body in answers] == [2, 8, 4]

    asyncio.run(main())


def test_a_head_is_read_to_its_end_and_a_body_to_its_length() -> None:
    async def main() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(b"POST /x HTTP/1.1\r\nContent-Length: 5\r\nX: a: b\r\n\r\nhellorest")
        assert await read_request(reader) == ("POST", "/x", b"hello")

    asyncio.run(main())
