"""Exception class to HTTP answer: one table, one body shape, for every error of every endpoint.

A class that is not in the table is answered as its nearest ancestor in the table. The body is OpenAI's:
`{"error": {"message", "type", "param", "code"}}`; the same object goes into a stream that breaks after it began.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from starlette.responses import Response

from evenflow.core.errors import (
    ContextOverflow,
    DeadlineTooSoon,
    DuplicateRequest,
    EngineDead,
    EngineUnavailable,
    EvenflowError,
    InvalidRequest,
    QueueFull,
    RequestError,
)

# Messages quote what the client sent, which may be megabytes long.
MAX_MESSAGE_CHARS = 600

RETRY_AFTER_SECONDS = 5.0


class BodyTooLarge(RequestError):
    """The body has more bytes than `ServerLimits.max_body_bytes`."""


class BodyTooSlow(RequestError):
    """The body was not complete within `ServerLimits.max_body_seconds`."""


class ShuttingDown(EngineUnavailable):
    """The server ends; what it has not begun it will not begin."""


class TooManyBodies(RequestError):
    """Other requests' bodies fill the memory that bodies may take; try again later."""


class UnsupportedMediaType(RequestError):
    """The body is not declared to be JSON."""


class UnknownModel(RequestError):
    """The model named is not the one served."""


class NotFound(RequestError):
    """There is nothing at this path."""


class MethodNotAllowed(RequestError):
    """The path exists, but not for this method."""


class InvalidApiKey(RequestError):
    """The key is missing or wrong."""


class AdminForbidden(RequestError):
    """Administration is not open on this server."""


class Disconnected(Exception):
    """The client went away; there is nobody to answer."""


class Answer(NamedTuple):
    status: int
    type: str
    code: str | None


ANSWERS: Mapping[type[BaseException], Answer] = {
    RequestError: Answer(400, "invalid_request_error", None),
    InvalidRequest: Answer(400, "invalid_request_error", "invalid_value"),
    ContextOverflow: Answer(400, "invalid_request_error", "context_length_exceeded"),
    DuplicateRequest: Answer(400, "invalid_request_error", "duplicate_request_id"),
    InvalidApiKey: Answer(401, "invalid_request_error", "invalid_api_key"),
    AdminForbidden: Answer(403, "invalid_request_error", "admin_forbidden"),
    UnknownModel: Answer(404, "invalid_request_error", "model_not_found"),
    NotFound: Answer(404, "invalid_request_error", "not_found"),
    MethodNotAllowed: Answer(405, "invalid_request_error", "method_not_allowed"),
    BodyTooSlow: Answer(408, "invalid_request_error", "request_timeout"),
    BodyTooLarge: Answer(413, "invalid_request_error", "request_too_large"),
    UnsupportedMediaType: Answer(415, "invalid_request_error", "unsupported_media_type"),
    DeadlineTooSoon: Answer(504, "timeout_error", "deadline_too_soon"),
    QueueFull: Answer(429, "rate_limit_error", "queue_full"),
    TooManyBodies: Answer(429, "rate_limit_error", "too_many_bodies"),
    EngineUnavailable: Answer(503, "server_error", "engine_unavailable"),
    EvenflowError: Answer(500, "server_error", "internal_error"),
    BaseException: Answer(500, "server_error", "internal_error"),
}


class ErrorDetail(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct):
    error: ErrorDetail


def answer_for(error: BaseException) -> Answer:
    return next(ANSWERS[ancestor] for ancestor in type(error).__mro__ if ancestor in ANSWERS)


def error_body(error: BaseException) -> ErrorBody:
    answer = answer_for(error)
    # The text of an error that is not ours is for the log: it may name paths or hold somebody's prompt.
    message = str(error) if isinstance(error, EvenflowError) else "The server failed to answer; its log says why."
    if len(message) > MAX_MESSAGE_CHARS:
        message = message[:MAX_MESSAGE_CHARS] + "..."
    # A lone surrogate, which a header can carry, has no UTF-8 form.
    message = message.encode("utf-8", "replace").decode("utf-8")
    param = error.param if isinstance(error, RequestError) else None
    return ErrorBody(ErrorDetail(message=message, type=answer.type, param=param, code=answer.code))


def error_headers(error: BaseException) -> dict[str, str]:
    match error:
        case QueueFull():
            return {"retry-after": str(max(1, round(error.retry_after_seconds)))}
        case ShuttingDown():
            return {"retry-after": str(round(RETRY_AFTER_SECONDS)), "connection": "close"}
        case BodyTooSlow():
            return {"connection": "close"}
        case EngineDead():
            return {}  # who comes back finds it dead: whether it is started again, only the service manager knows
        case EngineUnavailable() | TooManyBodies():
            return {"retry-after": str(round(RETRY_AFTER_SECONDS))}
        case InvalidApiKey():
            return {"www-authenticate": "Bearer"}
        case _:
            return {}


def error_response(error: BaseException, extra_headers: Mapping[str, str] | None = None) -> Response:
    return Response(
        msgspec.json.encode(error_body(error)),
        status_code=answer_for(error).status,
        headers={**error_headers(error), **(extra_headers or {})},
        media_type="application/json",
    )
