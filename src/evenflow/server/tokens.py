"""The answer of /tokenize: possibly millions of numbers, written part by part, so that nobody waits for the whole."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import msgspec
from starlette.responses import Response, StreamingResponse

from evenflow.server.replies import Tokens

PART_ITEMS = 64 * 1024


def tokens_response(tokens: Tokens) -> Response:
    if tokens.count <= PART_ITEMS:
        return Response(msgspec.json.encode(tokens), media_type="application/json")
    return StreamingResponse(_parts(tokens), media_type="application/json")


async def _parts(tokens: Tokens) -> AsyncIterator[bytes]:
    yield b'{"count":%d,"max_model_len":%d,"tokens":[' % (tokens.count, tokens.max_model_len)
    async for part in _items(tokens.tokens):
        yield part
    if tokens.token_strs is None:
        yield b'],"token_strs":null}'
        return
    yield b'],"token_strs":['
    async for part in _items(tokens.token_strs):
        yield part
    yield b"]}"


async def _items(items: Sequence[int | str]) -> AsyncIterator[bytes]:
    for start in range(0, len(items), PART_ITEMS):
        comma = b"," if start else b""
        yield comma + msgspec.json.encode(items[start : start + PART_ITEMS])[1:-1]
        await asyncio.sleep(0)  # sending does not wait as long as the reader keeps up
