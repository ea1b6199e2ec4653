"""What happens to every request before its endpoint: it gets an id, and shows its key.

Plain ASGI, so that nothing stands between a stream and its socket.
"""

import re
from collections.abc import Callable, Set

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evenflow.core.errors import InvalidRequest
from evenflow.server.api_keys import ApiKeys
from evenflow.server.errors import InvalidApiKey, error_response

REQUEST_ID_HEADER = "x-request-id"
_REQUEST_ID = re.compile(r"[A-Za-z0-9_.:\-]{1,128}")

# What a load balancer asks must not need a key, nor must the question what this is. Everything else does, also what is
# added later. The dashboard's page has no data in it.
OPEN_PATHS: Set[str] = frozenset({"/", "/health", "/ready", "/version", "/dashboard", "/dashboard/presets"})
# These check a key of their own.
SELF_GUARDED = "/admin/"


class RequestIds:
    """Puts the client's x-request-id, or a new id, into the scope's state and on the response."""

    def __init__(self, app: ASGIApp, new_id: Callable[[], str]) -> None:
        self._app = app
        self._new_id = new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # A probe's id names nothing here, and may be of any form.
        given = None if scope["path"] in OPEN_PATHS else Headers(scope=scope).get(REQUEST_ID_HEADER)
        if given is not None and not _REQUEST_ID.fullmatch(given):
            error = InvalidRequest(
                f"{REQUEST_ID_HEADER} must be 1 to 128 letters, digits or any of _ . : -", param=REQUEST_ID_HEADER
            )
            await error_response(error)(scope, receive, send)
            return
        request_id = self._new_id() if given is None else given
        scope.setdefault("state", {})["request_id"] = request_id
        header = (REQUEST_ID_HEADER.encode(), request_id.encode())

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), header]
            await send(message)

        await self._app(scope, receive, send_with_id)


class ApiKey:
    """Lets through what carries a key, and what needs none. Puts the key's tenant, if it has one, into the state."""

    def __init__(self, app: ASGIApp, keys: ApiKeys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        guarded = scope["type"] == "http" and scope["path"] not in OPEN_PATHS
        if guarded and not scope["path"].startswith(SELF_GUARDED):
            # Headers are read as Latin-1, so this gives back the bytes that were sent.
            scheme, _, key = Headers(scope=scope).get("authorization", "").encode("latin-1").partition(b" ")
            known, tenant = self._keys.find(key.strip())
            if scheme.lower() != b"bearer" or not known:
                error = InvalidApiKey("The API key is missing or wrong; send it as 'Authorization: Bearer KEY'")
                await error_response(error)(scope, receive, send)
                return
            scope.setdefault("state", {})["tenant"] = tenant
        await self._app(scope, receive, send)
