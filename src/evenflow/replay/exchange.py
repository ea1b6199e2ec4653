"""One request on its way: sent, its answer read, and exactly one ending noted, good or bad."""

import asyncio
from collections.abc import Callable

from evenflow.replay.connection import Connection, ConnectionPool
from evenflow.replay.file_limit import OWN_LIMITS
from evenflow.replay.pacing import Patience
from evenflow.replay.request import Failure, ObservedRequest, Reason
from evenflow.replay.stream import StreamError, TokenStream

MAX_ERROR_BYTES = 4096
_SHOWN_CHARS = 300


class Exchange:
    """The Receiver of one answer. `on_end` is called once, when `observed.finished` is set."""

    def __init__(
        self, observed: ObservedRequest, request: bytes, pool: ConnectionPool, on_end: Callable[["Exchange"], None]
    ) -> None:
        self.observed = observed
        self.last_heard = 0.0
        self._request = request
        self._pool = pool
        self._on_end = on_end
        self._connection: Connection | None = None
        self._opening: asyncio.Task[None] | None = None
        self._stream: TokenStream | None = None
        self._status: int | None = None
        self._error_body = b""

    def send(self, now: float) -> None:
        """On an idle connection at once; else on a new one."""
        self.observed.sent = self.last_heard = now
        connection = self._pool.take()
        if connection is not None:
            self._send_on(connection)
        else:
            self._open()

    def _send_on(self, connection: Connection) -> None:
        self._connection = connection
        connection.send(self._request, self)

    def _open(self) -> None:
        self._opening = self._pool.loop.create_task(self._send_on_new())

    async def _send_on_new(self) -> None:
        try:
            connection = await self._pool.open()
        except OSError as error:
            self._fail(_no_connection(error), self._pool.loop.time())
            return
        if self.observed.finished is None:
            self.last_heard = self._pool.loop.time()
            self._send_on(connection)
        else:
            connection.close()

    def overdue(self, patience: Patience, now: float) -> Failure | None:
        sent = self.observed.sent
        assert sent is not None
        if self._connection is None and now - self.last_heard > patience.connect_seconds:
            return Failure(Reason.CONNECT, f"no connection could be opened within {patience.connect_seconds:g} s")
        if now - self.last_heard > patience.silence_seconds:
            num = sum(self.observed.chunk_events)
            return Failure(
                Reason.STALLED, f"nothing came for {patience.silence_seconds:g} s after {num} tokens; it is half-dead"
            )
        chunk_times = self.observed.chunk_times
        if now - (chunk_times[-1] if chunk_times else sent) > patience.token_seconds:
            num = sum(self.observed.chunk_events)
            return Failure(
                Reason.STALLED,
                f"the server sends, but no token for {patience.token_seconds:g} s after {num} tokens; it is half-dead",
            )
        if now - sent > patience.whole_seconds:
            return Failure(Reason.STALLED, f"the answer was not complete after {patience.whole_seconds:g} s")
        return None

    def give_up(self, failure: Failure, now: float) -> None:
        """From outside: it took too long, or the run ends."""
        if self._opening is not None:
            self._opening.cancel()
        self._fail(failure, now)

    # ---- Receiver

    def head(self, status: int, headers: dict[bytes, bytes], now: float) -> None:
        self.last_heard = now
        self._status = status
        content_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if status == 200 and content_type == b"text/event-stream":
            self._stream = TokenStream(self.observed)
        elif status == 200:
            said = content_type.decode("latin-1")[:80] or "no content type"
            self._fail(Failure(Reason.NOT_A_STREAM, f"the server answered 200 with {said}, not an event stream"), now)

    def body(self, data: bytes, now: float) -> None:
        self.last_heard = now
        if self.observed.finished is not None:
            return
        if self._stream is None:
            self._error_body = (self._error_body + data)[:MAX_ERROR_BYTES]
            return
        try:
            self._stream.feed(data, now)
        except StreamError as error:
            self._fail(error.failure, now)

    def end(self, now: float) -> None:
        self._connection = None  # it may carry the next exchange already
        if self.observed.finished is not None:
            return
        if self._stream is None:
            words = " ".join(self._error_body.decode(errors="replace").split())[:_SHOWN_CHARS]
            self._fail(Failure(Reason.HTTP, f"HTTP {self._status}: {words}"), now)
            return
        try:
            self._stream.close()
        except StreamError as error:
            self._fail(error.failure, now)
            return
        self._finish(now)

    def lost(self, error: Exception | None, now: float) -> None:
        if self.observed.finished is not None:
            return
        connection = self._connection
        assert connection is not None
        # A server may close an idle connection just as we write to it; it has not read the request then.
        if connection.num_carried > 1 and not connection.answer_begun:
            self._open()
            return
        how = f": {error}" if error is not None else ""
        num = sum(self.observed.chunk_events)
        self._fail(Failure(Reason.LOST, f"the connection was lost after {num} tokens{how}"), now)

    # ---- endings

    def _fail(self, failure: Failure, now: float) -> None:
        if self.observed.finished is not None:
            return
        self.observed.failure = failure
        if self._connection is not None:
            self._connection.close()  # the rest of the answer is still to come on it
        self._finish(now)

    def _finish(self, now: float) -> None:
        self.observed.finished = now
        self._connection = None
        self._on_end(self)


def _no_connection(error: OSError) -> Failure:
    if error.errno in OWN_LIMITS:
        return Failure(Reason.CLIENT_LIMIT, f"this machine could open no more connections: {error}")
    return Failure(Reason.CONNECT, f"no connection could be opened: {error}")
