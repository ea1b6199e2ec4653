"""The HTTP application: routes, middleware and error answers put together around one engine.

`extra_routes` is where other parts add their endpoints; they are behind the API key like everything else.
"""

import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import chain

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route

from evenflow.core.errors import EvenflowError, InvalidRequest
from evenflow.engine.api import Engine
from evenflow.server.admin import AdminRoutes
from evenflow.server.api_keys import ApiKeys
from evenflow.server.body import BodyReader
from evenflow.server.encoding import Lanes, Tokenizer
from evenflow.server.errors import Disconnected, MethodNotAllowed, NotFound, error_response
from evenflow.server.front import Front
from evenflow.server.jobs import LiveJobs
from evenflow.server.limits import ServerLimits
from evenflow.server.logprobs import token_texts
from evenflow.server.middleware import ApiKey, RequestIds
from evenflow.server.prompts import Prompter
from evenflow.server.routes import Routes
from evenflow.server.shutdown import Shutdown

# What nginx logs for a client that hung up; it reaches nobody.
CLIENT_CLOSED_REQUEST = 499


def unix_time() -> float:
    return datetime.now(UTC).timestamp()


def random_id() -> str:
    return uuid.uuid4().hex


def no_metrics() -> tuple[bytes, str]:
    return b"", "text/plain; version=1.0.0; charset=utf-8"


def create_app(
    engine: Engine,
    tokenizer: Tokenizer,
    *,
    served_model_name: str,
    limits: ServerLimits | None = None,
    api_keys: ApiKeys | None = None,
    render_metrics: Callable[[], tuple[bytes, str]] = no_metrics,
    observe_n: Callable[[int], None] = lambda n: None,
    max_chars_per_token: int | None = None,
    shutdown: Shutdown | None = None,
    admin_key: str | None = None,
    extra_routes: Sequence[BaseRoute] = (),
    now: Callable[[], float] = time.monotonic,
    new_id: Callable[[], str] = random_id,
) -> Starlette:
    """The engine may still be starting: until it is ready, generation answers 503.

    `max_chars_per_token` is the most characters of input that one token can stand for, if the tokenizer has such a
    bound (models/tokenizer_bound.py); it refuses hopelessly long prompts untokenised.
    Once `shutdown` is asked for, bodies that are not complete are refused. `render_metrics` gives the body of /metrics
    and its content type; `observe_n` is told the `n` of each request.
    """
    limits = limits or ServerLimits()
    lanes = Lanes()
    bodies = BodyReader(limits)
    if shutdown is not None:
        shutdown.subscribe(bodies.close)
    front = Front(
        engine=engine,
        tokenizer=tokenizer,
        token_texts=token_texts(tokenizer),
        served_model_name=served_model_name,
        limits=limits,
        prompter=Prompter(tokenizer, lanes, limits, max_chars_per_token),
        bodies=bodies,
        live=LiveJobs(),
        now=now,
        unix_time=unix_time,
        started=int(unix_time()),
        render_metrics=render_metrics,
        observe_n=observe_n,
        version=version("evenflow"),
    )

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        lanes.close()

    middleware = [Middleware(RequestIds, new_id=new_id)]
    if api_keys is not None:
        middleware.append(Middleware(ApiKey, keys=api_keys))
    app = Starlette(
        routes=[*Routes(front).table(), *AdminRoutes(engine, admin_key).table(), *extra_routes],
        middleware=middleware,
        exception_handlers={
            EvenflowError: answer_error,
            HTTPException: answer_http_exception,
            Disconnected: answer_nobody,
            Exception: answer_error,
        },
        lifespan=lifespan,
    )
    # A redirect would turn a client's POST into a GET; a wrong path is a 404.
    app.router.redirect_slashes = False
    return app


async def answer_error(request: Request, error: Exception) -> Response:
    return error_response(error)


async def answer_nobody(request: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED_REQUEST)


async def answer_http_exception(request: Request, error: Exception) -> Response:
    """The router's own errors, in our shape."""
    assert isinstance(error, HTTPException)
    path, method = request.url.path, request.method
    match error.status_code:
        case 404:
            return error_response(NotFound(f"There is nothing at {path[:128]}; GET / lists what there is"))
        case 405:
            allowed = methods_at(request)
            instead = " or ".join(name for name in allowed if name != "HEAD")
            said = MethodNotAllowed(f"{path[:128]} does not take {method[:16]}; use {instead}")
            return error_response(said, extra_headers={"allow": ", ".join(allowed)})
        case _:
            return error_response(InvalidRequest(str(error.detail)))


def methods_at(request: Request) -> list[str]:
    """What this path takes: a path may have a route for each of its methods, and the router's error knows one."""
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    found = [route.methods or () for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return sorted(set(chain.from_iterable(found)))
