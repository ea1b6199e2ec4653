"""Look at the scheduling policy of a running server, and change it between two steps.

    GET   /admin/scheduling   the policy, its bounds, and the limits they were computed from
    PATCH /admin/scheduling   a table of settings to change, {"preset": "sarathi"} or {"order": "priority"}; all or none

It has a token of its own: who may send prompts may not decide who waits. Without a token nobody may.
"""

import hmac

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evenflow.core.errors import InvalidRequest, PolicyError
from evenflow.core.policy.table import policy_to_table
from evenflow.engine.api import Engine, PolicyView
from evenflow.server.errors import AdminForbidden, InvalidApiKey, UnsupportedMediaType
from evenflow.server.query import check_query

ADMIN_PATH = "/admin/scheduling"
MAX_BODY_BYTES = 1 << 20


class AdminRoutes:
    """`key` None: the routes exist and say how to open them."""

    def __init__(self, engine: Engine, key: str | None) -> None:
        self._engine = engine
        self._key = None if key is None else key.encode()

    def table(self) -> list[Route]:
        return [
            Route(ADMIN_PATH, self.show, methods=["GET"]),
            Route(ADMIN_PATH, self.change, methods=["PATCH"]),
        ]

    async def show(self, request: Request) -> Response:
        self._check_key(request)
        check_query(request)
        return _answer(await self._engine.policy())

    async def change(self, request: Request) -> Response:
        self._check_key(request)
        check_query(request)
        change = await _table(request)
        try:
            return _answer(await self._engine.policy(change))
        except PolicyError as error:
            problems = [problem._asdict() for problem in error.problems]
            detail = {
                "message": f"Nothing was changed. {error}",
                "type": "invalid_request_error",
                "param": error.problems[0].field,
                "code": "invalid_policy",
                "problems": problems,
            }
            return Response(msgspec.json.encode({"error": detail}), 400, media_type="application/json")

    def _check_key(self, request: Request) -> None:
        if self._key is None:
            raise AdminForbidden(
                "This server has no admin key; start it with EVENFLOW_ADMIN_KEY set to look at or change its policy"
            )
        scheme, _, key = request.headers.get("authorization", "").encode("latin-1").partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(key.strip(), self._key):
            raise InvalidApiKey("The admin key is missing or wrong; send it as 'Authorization: Bearer KEY'")


async def _table(request: Request) -> dict[str, object]:
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise UnsupportedMediaType("Send the change as application/json")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY_BYTES:
            raise InvalidRequest(f"The change is larger than {MAX_BODY_BYTES} bytes", param=None)
    try:
        table = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(f"The change is not JSON: {error}", param=None) from error
    if not isinstance(table, dict):
        raise InvalidRequest('The change must be an object of settings, such as {"preset": "sarathi"}', param=None)
    return table


def _answer(view: PolicyView) -> Response:
    body = {
        "object": "scheduling",
        "policy": policy_to_table(view.spec),
        "bounds": msgspec.to_builtins(view.bounds),
        "limits": msgspec.to_builtins(view.limits),
    }
    return Response(msgspec.json.encode(body), media_type="application/json")
