"""One HTTP/1.1 connection as a load generator needs it: exact times, no waiting in between, no limit on how many.

General HTTP clients cost 0.5 ms and more per request and put several awaits between a byte's arrival and its time
stamp. Here the bytes are stamped as they are read, and llhttp (httptools) takes the answer apart.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, cast
from urllib.parse import urlsplit

import httptools

from evenflow.core.errors import ConfigError


class Receiver(Protocol):
    """Who waits for an answer. `head` comes first and once; then `body`s; then exactly one of `end` and `lost`."""

    def head(self, status: int, headers: dict[bytes, bytes], now: float) -> None: ...

    def body(self, data: bytes, now: float) -> None: ...

    def end(self, now: float) -> None: ...

    def lost(self, error: Exception | None, now: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Address:
    """Where a base URL leads. `path` has no slash at its end."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    path: str

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


def parse_url(url: str) -> Address:
    """With or without a final /v1."""
    try:
        parts = urlsplit(url)
        port = parts.port
        (parts.hostname or "").encode("idna")
    except ValueError as error:
        raise ConfigError(f"url {url!r} is not an address ({error})") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"url must be like http://127.0.0.1:8000, not {url!r}")
    if any(character.isspace() for character in url):
        raise ConfigError(f"url must be an address without spaces, not {url!r}")
    if parts.query or parts.fragment or parts.username:
        raise ConfigError(f"url must be a server's address without query, fragment or user, not {url!r}")
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    path = parts.path.rstrip("/").removesuffix("/v1")
    return Address(parts.hostname, (443 if tls else 80) if port is None else port, tls, path)


class Connection(asyncio.Protocol):
    """Carries one exchange at a time; `free` is told when it can carry the next."""

    def __init__(self, clock: Callable[[], float], free: Callable[["Connection"], None]) -> None:
        self._clock = clock
        self._free = free
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._receiver: Receiver | None = None
        self._headers: dict[bytes, bytes] = {}
        self._now = 0.0
        self._begun = False
        self.num_carried = 0

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def answer_begun(self) -> bool:
        """Whether any byte of the answer to what was sent last has come."""
        return self._begun

    def send(self, request: bytes, receiver: Receiver) -> None:
        assert self._transport is not None
        assert self._receiver is None, "one exchange at a time"
        self._receiver = receiver
        self._begun = False
        self.num_carried += 1
        self._transport.write(request)

    def close(self) -> None:
        """Drops the exchange without telling its receiver."""
        self._receiver = None
        if self._transport is not None:
            self._transport.abort()

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # a stream protocol is given a stream transport

    def data_received(self, data: bytes) -> None:
        self._now = self._clock()
        self._begun = True
        if self._receiver is None:
            self.close()  # it speaks without being asked
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._lose(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._now = self._clock()
        receiver, self._receiver = self._receiver, None
        if receiver is None:
            return
        if exc is None and self._ends_with_connection():
            receiver.end(self._now)
        else:
            receiver.lost(exc, self._now)

    def _ends_with_connection(self) -> bool:
        """An answer of no stated length is over when the connection is."""
        return bool(self._headers) and not self._headers.keys() & {b"content-length", b"transfer-encoding"}

    def _lose(self, error: Exception) -> None:
        receiver, self._receiver = self._receiver, None
        self.close()
        if receiver is not None:
            receiver.lost(error, self._now)

    # ---- httptools

    def on_message_begin(self) -> None:
        self._headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        if self._receiver is not None:
            self._receiver.head(self._parser.get_status_code(), self._headers, self._now)

    def on_body(self, body: bytes) -> None:
        if self._receiver is not None:
            self._receiver.body(body, self._now)

    def on_message_complete(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is None:
            return
        if self._parser.should_keep_alive() and self.usable:
            self._free(self)
        else:
            self.close()
        receiver.end(self._now)


@dataclass(slots=True)
class ConnectionPool:
    """Idle connections, the latest used first; a new one wherever there is none. There is no cap."""

    address: Address
    loop: asyncio.AbstractEventLoop
    _idle: list[Connection] = field(default_factory=list)
    num_opened: int = 0

    def take(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        return None

    async def open(self) -> Connection:
        """Raises OSError (which TimeoutError and ssl.SSLError are)."""
        address = self.address
        _, connection = await self.loop.create_connection(
            lambda: Connection(self.loop.time, self._idle.append), address.host, address.port, ssl=address.tls
        )
        self.num_opened += 1
        return connection

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()
