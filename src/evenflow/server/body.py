"""From the bytes of a request to its fields: bounded in size, strict in shape, and every fault named.

JSON only if it says so: a web page can make a browser post any other content type to a server on this machine without
asking it first.
"""

import asyncio
import difflib
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec
from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from evenflow.core.errors import InvalidRequest
from evenflow.server.errors import (
    BodyTooLarge,
    BodyTooSlow,
    Disconnected,
    ShuttingDown,
    TooManyBodies,
    UnsupportedMediaType,
)
from evenflow.server.limits import ServerLimits

T = TypeVar("T")

_LENGTH = re.compile(r"[0-9]{1,18}")
_LOCATION = re.compile(r" - at `(?:key` in `)?\$\.?(?P<path>[^`]*)`$")
_UNKNOWN = re.compile(r"^Object contains unknown field `(?P<name>.*)`$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(?P<name>.*)`$")


# Never refused for what others send: a few large bodies must not shut everybody out.
SMALL_BODY_BYTES = 64 * 1024

# A body of nothing but white space is said to be empty, if it is short.
MAX_BLANK_BYTES = 64


class BodyReader:
    """Reads bodies, one per request; knows how many bytes all requests hold together."""

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._bytes_in_flight = 0
        self._unfinished: set[asyncio.Timeout] = set()
        self._closed = False

    def close(self) -> None:
        """Wait for no body from now on: one that is not here already is refused."""
        self._closed = True
        for timeout in self._unfinished:
            if not timeout.expired():
                timeout.reschedule(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def receive(self, scope: Scope, receive: Receive) -> AsyncIterator[bytearray]:
        """The body. Its bytes count as in flight until the context is left."""
        check_content_type(Headers(scope=scope))
        self._refuse_if_declared_too_large(Headers(scope=scope).get("content-length"))
        body = bytearray()
        try:
            await self._fill_in_time(body, receive)
            yield body
        finally:
            self._bytes_in_flight -= len(body)

    async def _fill_in_time(self, body: bytearray, receive: Receive) -> None:
        seconds = 0.0 if self._closed else self._limits.max_body_seconds
        timeout = asyncio.timeout(seconds)
        self._unfinished.add(timeout)
        try:
            async with timeout:
                await self._fill(body, receive)
        except TimeoutError:
            if self._closed:
                raise ShuttingDown("The server is shutting down; send this to another one") from None
            raise BodyTooSlow(f"The body was not complete after {seconds} seconds; send it faster") from None
        finally:
            self._unfinished.discard(timeout)

    async def _fill(self, body: bytearray, receive: Receive) -> None:
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            chunk: bytes = message.get("body", b"")
            more = message.get("more_body", False)
            body += chunk
            self._bytes_in_flight += len(chunk)
            self._refuse_if_too_large(len(body))
            if len(body) > SMALL_BODY_BYTES and self._bytes_in_flight > self._limits.max_body_bytes_in_flight:
                raise TooManyBodies("The server is busy receiving other large requests; try again later")

    def _refuse_if_declared_too_large(self, content_length: str | None) -> None:
        if content_length is not None and _LENGTH.fullmatch(content_length):
            self._refuse_if_too_large(int(content_length))

    def _refuse_if_too_large(self, num_bytes: int) -> None:
        limit = self._limits.max_body_bytes
        if num_bytes > limit:
            raise BodyTooLarge(f"The body is larger than {limit} bytes, the most this server takes; send less")


def check_content_type(headers: Headers) -> None:
    given = headers.get("content-type", "")
    if given.partition(";")[0].strip().lower() != "application/json":
        said = f"not {given!r}" if given else "but there is none"
        raise UnsupportedMediaType(f"Content-Type must be application/json, {said}", param="content-type")
    encoding = headers.get("content-encoding", "identity")
    if encoding.strip().lower() not in ("", "identity"):
        reason = f"Content-Encoding {encoding[:64]!r} is not read here; send the body as it is"
        raise UnsupportedMediaType(reason, param="content-encoding")


# Decoding holds up every other client, and a body of the largest size can have 16 million values: seconds of it.
# Before each value but the first is one of these; text has them too, but a text with a million commas fits no model.
MAX_JSON_VALUES = 1_000_000
_BEFORE_VALUES = (b",", b"[", b"{")


def decode(decoder: msgspec.json.Decoder[T], body: bytes | bytearray) -> T:
    """The fields of `body`; raises InvalidRequest naming the one at fault."""
    known_fields = getattr(decoder.type, "__struct_fields__", ())
    if len(body) < MAX_BLANK_BYTES and not body.strip():
        needed = next((name for name in ("prompt", "messages", "tokens") if name in known_fields), "the fields")
        raise InvalidRequest(f"The body is empty; send a JSON object with {needed} in it", param=needed)
    if len(body) > MAX_JSON_VALUES and sum(map(body.count, _BEFORE_VALUES)) > MAX_JSON_VALUES:
        raise InvalidRequest(
            f"The body has more than {MAX_JSON_VALUES} values, or commas; send fewer prompts, tokens or messages"
        )
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _wrong_field(str(error), known_fields) from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"The body is not valid JSON: {error}") from None
    except RecursionError:
        raise InvalidRequest("The body is nested too deeply") from None


def _wrong_field(problem: str, known_fields: Sequence[str]) -> InvalidRequest:
    located = _LOCATION.search(problem)
    path = located["path"] if located else ""
    problem = problem[: located.start()] if located else problem
    if unknown := _UNKNOWN.match(problem):
        name = unknown["name"]
        known = [] if path else known_fields
        # The comparison is quadratic in the length of what the client sent.
        near = difflib.get_close_matches(name[:64], known, n=1)
        hint = f"did you mean {near[0]}?" if near else "leave it out"
        return InvalidRequest(f"Unknown field {name[:64]!r}; {hint}", param=_join(path, name[:64]))
    if missing := _MISSING.match(problem):
        param = _join(path, missing["name"])
        return InvalidRequest(f"{param} is missing", param=param)
    if not path:
        return InvalidRequest(f"The body has the wrong shape: {problem}")
    return InvalidRequest(f"{path} has the wrong type: {problem}", param=path)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
