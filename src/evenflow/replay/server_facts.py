"""What a server says of itself, in the dialects of evenflow, vLLM and llama.cpp: models, context, tokenizer.

GET  /v1/models    {"data": [{"id": ..., "max_model_len": ...}]}       all; the length is evenflow's and vLLM's
GET  /props        {"default_generation_settings": {"n_ctx": ...}}     llama.cpp: the context of one slot
POST /tokenize     {"model", "prompt"} or {"content"}  ->  {"tokens": [...]}
GET  /version      {"version": ...}
"""

import asyncio
from dataclasses import dataclass
from typing import Annotated, NamedTuple, TypeVar

import httpx
import msgspec

from evenflow.core.errors import EvenflowError

_SECONDS = 10.0
"""Of silence."""
_ALL_SECONDS = 60.0
MAX_ANSWER_BYTES = 16 << 20


class ServerUnusable(EvenflowError):
    """No load can be sent to this server; the message says why, and what would help."""


class _Model(msgspec.Struct):
    id: str
    max_model_len: int | None = None


class _Models(msgspec.Struct):
    data: list[_Model]


class _Generation(msgspec.Struct):
    n_ctx: int | None = None


class _Props(msgspec.Struct):
    default_generation_settings: _Generation | None = None
    build_info: str | None = None


class _Tokens(msgspec.Struct):
    tokens: list[Annotated[int, msgspec.Meta(ge=0, lt=2**31)]]


class _Version(msgspec.Struct):
    version: str


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """`max_model_len` bounds prompt plus output; None if the server does not say."""

    model: str
    max_model_len: int | None
    software: str


class _Answer(NamedTuple):
    """`server` is what it calls itself."""

    status_code: int
    server: str
    content: bytes


class ServerQuestions:
    """Asks one server. `base_url` is without /v1."""

    def __init__(self, http: httpx.AsyncClient, base_url: str) -> None:
        self._http = http
        self._base_url = base_url

    async def facts(self, model: str | None) -> ServerFacts:
        response = await self._get("/v1/models")
        if response.status_code in (401, 403):
            raise ServerUnusable(
                f"{self._base_url} wants another API key (HTTP {response.status_code}); give --api-key"
            )
        models = _decoded(response, _Models)
        listed = models.data if models is not None else []
        if model is None:
            if not listed:
                raise ServerUnusable(f"{self._base_url} lists no model (HTTP {response.status_code}); give --model")
            model = listed[0].id
        own = next((each for each in listed if each.id == model), None)
        if listed and own is None:
            names = ", ".join(each.id for each in listed)
            raise ServerUnusable(f"{self._base_url} does not serve {model!r}; it serves {names}")
        props = _decoded(await self._get("/props"), _Props)
        max_model_len = own.max_model_len if own is not None else None
        if max_model_len is None and props is not None and props.default_generation_settings is not None:
            max_model_len = props.default_generation_settings.n_ctx
        return ServerFacts(model, max_model_len, await self._software(response, props))

    async def _software(self, response: _Answer, props: _Props | None) -> str:
        name = response.server
        if props is not None and props.build_info:
            return f"{name or 'llama.cpp'} {props.build_info}"
        version = _decoded(await self._get("/version"), _Version)
        return f"{name} version {version.version}".strip() if version is not None else name or "unnamed"

    async def encode(self, model: str, text: str) -> list[int] | None:
        """None if the server does not tokenise."""
        for body in ({"model": model, "prompt": text, "add_special_tokens": False}, {"content": text}):
            try:
                response = await self._ask("POST", "/tokenize", body)
            except (httpx.HTTPError, TimeoutError):
                return None
            tokens = _decoded(response, _Tokens)
            if tokens is not None and tokens.tokens:
                return tokens.tokens
        return None

    async def _ask(self, method: str, path: str, body: object = None) -> _Answer:
        """Raises httpx.HTTPError, TimeoutError, ServerUnusable. A server may send byte by byte, or without an end."""
        content = bytearray()
        async with (
            asyncio.timeout(_ALL_SECONDS),
            self._http.stream(method, self._base_url + path, json=body) as response,
        ):
            async for piece in response.aiter_bytes():
                content += piece
                if len(content) > MAX_ANSWER_BYTES:
                    raise ServerUnusable(
                        f"{self._base_url} answers {path} with more than {MAX_ANSWER_BYTES} bytes; is it a server of "
                        "the OpenAI API?"
                    )
            return _Answer(response.status_code, response.headers.get("server", ""), bytes(content))

    async def _get(self, path: str) -> _Answer:
        try:
            return await self._ask("GET", path)
        except httpx.InvalidURL as error:
            raise ServerUnusable(f"{self._base_url} is no address: {error}") from error
        except httpx.ConnectError as error:
            raise ServerUnusable(f"cannot reach {self._base_url}: {error}; is the server running there?") from error
        except TimeoutError as error:
            raise ServerUnusable(
                f"{self._base_url} has not answered {path} completely within {_ALL_SECONDS:g} s; it is half-dead"
            ) from error
        except httpx.TimeoutException as error:
            raise ServerUnusable(
                f"{self._base_url} takes connections but does not answer {path} within {_SECONDS:g} s; it is half-dead"
            ) from error
        except httpx.HTTPError as error:
            raise ServerUnusable(f"{self._base_url} does not answer {path} as an HTTP server would: {error}") from error


def questions_client(api_key: str | None) -> httpx.AsyncClient:
    headers = {"accept-encoding": "identity"}
    if api_key is not None:
        headers["authorization"] = f"Bearer {api_key}"
    return httpx.AsyncClient(headers=headers, timeout=_SECONDS, trust_env=False)


ShapeT = TypeVar("ShapeT")


def _decoded(response: _Answer, shape: type[ShapeT]) -> ShapeT | None:
    if response.status_code != 200:
        return None
    try:
        return msgspec.json.decode(response.content, type=shape)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
