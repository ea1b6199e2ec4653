"""uvicorn's HTTP parser with a bound on what it keeps, and our error shape for what is not HTTP.

The parser keeps a head until it is complete, and a chunk's size line or a trailer likewise; without a bound, one that
never ends takes all memory. What follows the head is no header: trailers are dropped, or a client could add headers
behind the back of whoever has already looked at them. An offer to upgrade (h2c, which some HTTP clients make with every
request) is not taken up, so it is taken out: the parser would stop at it and lose the body.
"""

import re

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from evenflow.core.errors import InvalidRequest
from evenflow.server.errors import error_body

MAX_HEAD_BYTES = 64 * 1024
_UPGRADE = re.compile(rb"\r\nupgrade[ \t]*:[^\r\n]*", re.IGNORECASE)


class BoundedHttp(HttpToolsProtocol):
    _in_head = False
    # Bytes since something last came to an end: a head, a piece of a body. None between requests.
    _unfinished_bytes: int | None = None

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
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unfinished_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unfinished_bytes = None
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        if self._unfinished_bytes is not None:
            self._unfinished_bytes += len(data)
        else:
            head, end, rest = data.partition(b"\r\n\r\n")
            data = _UPGRADE.sub(b"", head) + end + rest
        super().data_received(data)
        if self._unfinished_bytes is not None and self._unfinished_bytes > MAX_HEAD_BYTES:
            self._refuse(431, f"The request's headers are longer than {MAX_HEAD_BYTES} bytes; send less")

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, f"{msg} Send HTTP/1.1.")

    def _refuse(self, status: int, message: str) -> None:
        body = msgspec.json.encode(error_body(InvalidRequest(message)))
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()
