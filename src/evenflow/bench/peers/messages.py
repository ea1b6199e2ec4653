"""What goes through the pipe between the bench and a driver: one JSON object per line, each with its type.

    driver > {"type": "ready", "version": "..."}
    bench  > {"job": "/path/of/a/file"}          the file: {"prompts": [[...]], "max_tokens": [...]}  or  {"floor": ...}
    driver > {"type": "ran", "wall_seconds": ..., "prompt_tokens": [...], "output_tokens": [...], "steps": [...]}
             {"type": "floor", "seconds": ...}    {"type": "failed", "reason": "..."}

Jobs go by file because a pipe holds 64 KiB, and a driver that does not read must not hold up the bench.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from evenflow.core.errors import EvenflowError

MAX_LINE_BYTES = 64 * 2**20

_Seconds = Annotated[float, Meta(ge=0.0)]
_Count = Annotated[int, Meta(ge=0)]


class ContenderFailed(EvenflowError):
    """A contender did not do what was asked; its row says why, and the others go on."""


class Step(msgspec.Struct, frozen=True, array_like=True):
    """One step of evenflow: tokens fed, rows that sampled, and the sum over tokens of the positions each attends to."""

    seconds: _Seconds
    tokens: _Count
    sampled: _Count
    attended: _Count


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    version: Annotated[str, Meta(max_length=500)]


class Ran(msgspec.Struct, frozen=True, tag="ran"):
    wall_seconds: _Seconds
    prompt_tokens: list[_Count]
    output_tokens: list[_Count]
    steps: list[Step] = []


class Floor(msgspec.Struct, frozen=True, tag="floor"):
    seconds: _Seconds


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    reason: str


Reply = Ready | Ran | Floor | Failed
_replies = msgspec.json.Decoder(Reply)


def parse_reply(line: bytes) -> Reply:
    try:
        return _replies.decode(line)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ContenderFailed(f"its driver said {line[:200]!r}: {error}") from None


class RunJob(msgspec.Struct, frozen=True):
    prompts: list[tuple[int, ...]]
    max_tokens: list[int]


class FloorJob(msgspec.Struct, frozen=True):
    """(tokens, rows that sampled) of every step."""

    floor: list[tuple[int, int]]
