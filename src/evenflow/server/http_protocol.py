"""uvicorn's HTTP parser with a bound on what it keeps, and our error shape for what is not HTTP.

The parser keeps a head until it is complete, and a chunk's size line or a trailer likewise; without a bound, one that
never ends takes all memory. What follows the head is no header: trailers are dropped, or a client could add headers
behind the back of whoever has already looked at them. An offer to upgrade (h2c, which some HTTP clients make with every
request) is not taken up, so it is taken out: the parser would stop at it and lose the body.

A client has `head_seconds` for a head, from its first byte or from the connection's beginning, and for the rest of a
body that was answered without it; then it is hung up on. An idle connection may stay for as long as uvicorn lets it.

What is not HTTP is answered and logged, but not once per client that does not speak it: anybody can knock.
"""

import asyncio
import logging
import math
import re
import sys
import time
from typing import Any, cast

import msgspec
from httptools import HttpParserError
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from evenflow.core.errors import InvalidRequest
from evenflow.server.errors import error_body

MAX_HEAD_BYTES = 64 * 1024
SECONDS_BETWEEN_COMPLAINTS = 60.0
_UPGRADE = re.compile(rb"\r\nupgrade[ \t]*:[^\r\n]*", re.IGNORECASE)


logger = logging.getLogger(__name__)
# uvicorn's own words on a connection: its errors matter, its warnings are one for each client that is not understood.
_uvicorn_logger = logging.getLogger(f"{__name__}.uvicorn")


def quieten() -> None:
    _uvicorn_logger.setLevel(logging.ERROR)


class Visitors(ServerState):
    """What uvicorn knows of all connections, and how many of them did not speak HTTP."""

    def __init__(self) -> None:
        super().__init__()
        self._num_unheard = 0
        self._silent_until = -math.inf

    def complain(self, client: tuple[str, int] | None, reason: str) -> None:
        """One line for the first, then at most one a minute."""
        self._num_unheard += 1
        now = time.monotonic()
        if now >= self._silent_until:
            self._silent_until = now + SECONDS_BETWEEN_COMPLAINTS
            others = f" ({self._num_unheard - 1} more since the last such line)" if self._num_unheard > 1 else ""
            who = client[0] if client else "a client"
            logger.warning("%s sent a request that cannot be read: %s%s", who, reason, others)
            self._num_unheard = 0


class BoundedHttp(HttpToolsProtocol):
    head_seconds = 30.0
    _deaf = False
    _in_head = False
    _head_timer: asyncio.TimerHandle | None = None
    # Bytes since something last came to an end: a head, a piece of a body. None between requests.
    _unfinished_bytes: int | None = None

    def __init__(self, *arguments: Any, **keywords: Any) -> None:  # Any: uvicorn's own
        super().__init__(*arguments, **keywords)
        self.logger = _uvicorn_logger

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(transport)
        self._time_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._unfinished_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._unfinished_bytes = 0
        head_bytes = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if head_bytes > MAX_HEAD_BYTES:  # it came in one piece
            self._refuse_long_head()
        if not self._deaf:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unfinished_bytes = 0
        if not self._deaf:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._unfinished_bytes = None
        if not self._deaf:
            super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        if self._unfinished_bytes is not None:
            self._unfinished_bytes += len(data)
        else:
            head, end, rest = data.partition(b"\r\n\r\n")
            data = _UPGRADE.sub(b"", head) + end + rest
        super().data_received(data)
        if self._deaf:
            return
        self._time_head()
        if self._unfinished_bytes is not None and self._unfinished_bytes > MAX_HEAD_BYTES:
            self._refuse_long_head()

    def _refuse_long_head(self) -> None:
        self._refuse(431, f"The request's headers are longer than {MAX_HEAD_BYTES} bytes; send less")

    def _time_head(self) -> None:
        """A timer runs while a head is to come, or the rest of a body that nobody waits for any more."""
        in_request = self.cycle is not None and not self.cycle.response_complete
        if in_request and not self._in_head:
            self._stop_timer()
        elif self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(self.head_seconds, self._head_is_late)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if not self._in_head:
            self.transport.close()
        else:
            self._refuse(408, f"The request's headers were not complete after {self.head_seconds} seconds")

    def send_400_response(self, msg: str) -> None:
        fault = sys.exception()  # uvicorn calls this where it has caught the parser's error, and does not pass it on
        why = f" ({fault})" if isinstance(fault, HttpParserError) and str(fault) else ""
        self._refuse(400, f"This is not HTTP/1.1 as this server reads it{why}; send plain HTTP/1.1 (no TLS, no HTTP/2)")

    def _refuse(self, status: int, message: str) -> None:
        if self._deaf:
            return
        self._stop_timer()
        self._deaf = True
        cast(Visitors, self.server_state).complain(self.client, message)
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:
                cycle.keep_alive = False  # what was asked before this is answered first, and nothing written into it
                return
            if cycle.response_started or self.pipeline:
                self.transport.close()
                return
        body = msgspec.json.encode(error_body(InvalidRequest(message)))
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()
