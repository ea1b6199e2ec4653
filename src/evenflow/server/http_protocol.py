"""uvicorn's HTTP parser with a bound on request heads, and our error shape for what is not HTTP.

The parser keeps a head until it is complete; without a bound, a head that never ends takes all memory.
"""

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from evenflow.core.errors import InvalidRequest
from evenflow.server.errors import error_body

MAX_HEAD_BYTES = 64 * 1024


class BoundedHttp(HttpToolsProtocol):
    # Bytes of the unfinished head that came after the packet it began in.
    _head_bytes: int | None = None

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        self._head_bytes = None
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        if self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(431, f"The request's headers are longer than {MAX_HEAD_BYTES} bytes; send less")
                return
        super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, f"{msg} Send HTTP/1.1.")

    def _refuse(self, status: int, message: str) -> None:
        body = msgspec.json.encode(error_body(InvalidRequest(message)))
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()
