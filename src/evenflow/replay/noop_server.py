"""A server that computes nothing: it answers a completion as its script says, and notes when it did what.

What a load generator says about it can be checked, because the truth is known: delays, failures, several tokens per
event, streams that end early or never. `python -m evenflow.replay.noop_server` runs one in a process of its own.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import cast

import httptools
import msgspec


class Ending(Enum):
    DONE = "usage and [DONE]"
    NO_USAGE = "[DONE] without usage"
    CUT = "the connection is closed"
    HANG = "nothing more, ever"


@dataclass(frozen=True, slots=True)
class Answer:
    """`num_tokens` None is as many as asked for. `field` is what a token's text is called; "" sends empty texts."""

    status: int = 200
    first_token_seconds: float = 0.0
    gap_seconds: float = 0.0
    tokens_per_event: int = 1
    num_tokens: int | None = None
    field: str = "text"
    ending: Ending = Ending.DONE


@dataclass(slots=True, eq=False)
class Asked:
    """A request as the server saw it. `token_times` has an instant per event with tokens."""

    index: int
    request_id: str
    received: float
    body: dict[str, object]
    token_times: list[float] = field(default_factory=list)

    @property
    def max_tokens(self) -> int:
        return int(str(self.body.get("max_tokens", 16)))

    @property
    def num_prompt_tokens(self) -> int:
        prompt = self.body.get("prompt")
        return len(prompt) if isinstance(prompt, list) else len(str(prompt).split())


Script = Callable[[Asked], Answer]


def at_once(asked: Asked) -> Answer:
    return Answer()


class NoopServer:
    """`asked` has every request in order of arrival; `most_connections` is how many were open at once."""

    def __init__(self, script: Script = at_once) -> None:
        self.script = script
        self.asked: list[Asked] = []
        self.num_connections = 0
        self.most_connections = 0
        self.seen_prompts: set[bytes] = set()
        self.num_repeated_prompts = 0

    def protocol(self) -> asyncio.Protocol:
        return _Connection(self)


class _Connection(asyncio.Protocol):
    def __init__(self, server: NoopServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._url = b""
        self._body = b""
        self._id = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # a stream protocol is given a stream transport
        self._server.num_connections += 1
        self._server.most_connections = max(self._server.most_connections, self._server.num_connections)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.num_connections -= 1
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._url = self._body = b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"x-request-id":
            self._id = value.decode()

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        server = self._server
        if not self._url.endswith(b"completions"):
            self._write(_plain(200, _facts(self._url, self._body)))
            return
        body = msgspec.json.decode(self._body, type=dict[str, object])
        asked = Asked(len(server.asked), self._id, self._loop.time(), body)
        server.asked.append(asked)
        prompt = msgspec.json.encode(body.get("prompt", body.get("messages")))
        server.num_repeated_prompts += prompt in server.seen_prompts
        server.seen_prompts.add(prompt)
        self._answer(asked, server.script(asked))

    def _answer(self, asked: Asked, answer: Answer) -> None:
        if answer.status != 200:
            words = b'{"error":{"message":"the script says so"}}'
            self._loop.call_later(answer.first_token_seconds, self._write, _plain(answer.status, words))
            return
        pieces = events(asked, answer)
        if not pieces or answer.first_token_seconds == answer.gap_seconds == 0.0:
            asked.token_times += [self._loop.time()] * len(pieces)
            self._write(b"".join((_HEAD, *map(_chunk, pieces))))
            self._end(asked, answer)
            return
        self._write(_HEAD)
        # One timer after the other: timers of one instant run in any order.
        self._loop.call_later(answer.first_token_seconds, self._tokens, asked, answer, pieces, 0)

    def _tokens(self, asked: Asked, answer: Answer, pieces: Sequence[bytes], index: int) -> None:
        """From this one on, as many as are due now."""
        due = pieces[index : index + 1] if answer.gap_seconds else pieces[index:]
        asked.token_times += [self._loop.time()] * len(due)
        self._write(b"".join(map(_chunk, due)))
        index += len(due)
        if index < len(pieces):
            self._loop.call_later(answer.gap_seconds, self._tokens, asked, answer, pieces, index)
        else:
            self._end(asked, answer)

    def _end(self, asked: Asked, answer: Answer) -> None:
        match answer.ending:
            case Ending.CUT:
                if self._transport is not None:
                    self._transport.close()
            case Ending.HANG:
                pass
            case Ending.DONE | Ending.NO_USAGE:
                last = _last(asked, answer, with_usage=answer.ending is Ending.DONE)
                self._write(_chunk(last) + b"0\r\n\r\n")

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _plain(status: int, body: bytes) -> bytes:
    head = b"HTTP/1.1 %d Said\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % (status, len(body)) + body


def _facts(url: bytes, body: bytes) -> bytes:
    """The other endpoints that a load generator asks. Every word is a token, with its length as its id."""
    if url.endswith(b"/models"):
        return b'{"object":"list","data":[{"id":"noop","object":"model","max_model_len":1048576}]}'
    if url.endswith(b"/tokenize"):
        text = str(msgspec.json.decode(body, type=dict[str, object]).get("prompt"))
        ids = [len(word) for word in text.split()]
        return msgspec.json.encode({"count": len(ids), "max_model_len": 1048576, "tokens": ids})
    return b'{"version":"0"}'


def events(asked: Asked, answer: Answer) -> Sequence[bytes]:
    num_tokens = asked.max_tokens if answer.num_tokens is None else answer.num_tokens
    per_event = answer.tokens_per_event
    return [
        _event(answer.field, " tok" * min(per_event, num_tokens - begin)) for begin in range(0, num_tokens, per_event)
    ]


def _event(name: str, text: str) -> bytes:
    choice = {"text": text} if name == "text" else {"delta": {name: text}} if name else {"text": ""}
    choices = [{"index": 0, "finish_reason": None, **choice}]
    return b"data: %b\n\n" % msgspec.json.encode({"choices": choices})


def _last(asked: Asked, answer: Answer, *, with_usage: bool) -> bytes:
    finish = msgspec.json.encode({"choices": [{"index": 0, "text": "", "finish_reason": "length"}]})
    num_tokens = asked.max_tokens if answer.num_tokens is None else answer.num_tokens
    usage = {"prompt_tokens": asked.num_prompt_tokens, "completion_tokens": num_tokens}
    counted = b"data: %b\n\n" % msgspec.json.encode({"choices": [], "usage": usage}) if with_usage else b""
    return b"data: %b\n\n%bdata: [DONE]\n\n" % (finish, counted)


async def serve(server: NoopServer, announce: Callable[[int], None]) -> None:
    """On a free port of the loopback address, until cancelled."""
    listening = await asyncio.get_running_loop().create_server(server.protocol, "127.0.0.1", 0, backlog=4096)
    async with listening:
        announce(listening.sockets[0].getsockname()[1])
        await listening.serve_forever()


def _announce(port: int) -> None:
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(serve(NoopServer(), _announce))
