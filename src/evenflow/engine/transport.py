"""Messages as bytes between the front and the engine process.

    frame:  | payload length, 4 bytes, big endian | kind, 1 byte | payload: msgpack of one message |

`kind` is the message's place in `_MESSAGES`. A step, whatever it gave, is one frame, so each side pays for one write,
one wake-up and one read per step. Decoding is strict: a frame of another shape than its type is a `TransportError`.

msgspec packs the core's dataclasses and tuples as they are, but takes no union of dataclasses: an event is packed as
its place in `_EVENTS` and its own bytes.
"""

import struct
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

import msgspec

from evenflow.core.events import Event
from evenflow.core.plan import RequestOutput
from evenflow.engine.api import EngineFacts
from evenflow.engine.config import EngineConfig
from evenflow.engine.messages import Abort, Add, AskPolicy, PolicyAnswer, Refusal, StepResult

MAX_FRAME_BYTES = 64 * 2**20

_HEADER = struct.Struct(">IB")


class TransportError(Exception):
    """Bytes that are no message, or a message too large to be one frame."""


@dataclass(frozen=True, slots=True)
class Start:
    """The front's first message: what engine to build."""

    config: EngineConfig


@dataclass(frozen=True, slots=True)
class Ready:
    """The engine's first message, if it could be built."""

    facts: EngineFacts


@dataclass(frozen=True, slots=True)
class Failed:
    """The engine's last message: it could not be built, or a step raised. `error_class` names the exception."""

    error_class: str
    message: str


class _PackedEvent(NamedTuple):
    kind: int
    payload: msgspec.Raw


class _PackedStep(NamedTuple):
    outputs: tuple[RequestOutput, ...]
    events: tuple[_PackedEvent, ...]
    refusals: tuple[Refusal, ...]
    answers: tuple[PolicyAnswer, ...]


Message = Start | Ready | Failed | Add | Abort | AskPolicy | StepResult
_MESSAGES: tuple[type, ...] = get_args(Message)
_EVENTS: tuple[type, ...] = get_args(Event)
_KIND_OF = {message: kind for kind, message in enumerate(_MESSAGES)}
_EVENT_KIND_OF = {event: kind for kind, event in enumerate(_EVENTS)}

_encode = msgspec.msgpack.Encoder().encode
# The table decides the type at run time, which is why these are of Any.
_DECODERS: list[msgspec.msgpack.Decoder[Any]] = [
    msgspec.msgpack.Decoder(_PackedStep if message is StepResult else message) for message in _MESSAGES
]
_EVENT_DECODERS: list[msgspec.msgpack.Decoder[Any]] = [msgspec.msgpack.Decoder(event) for event in _EVENTS]


def encode(message: Message) -> bytes:
    """The message as one frame. Raises TransportError if there is none: too long, or a number or text msgpack lacks."""
    try:
        payload = _encode(_pack_step(message) if isinstance(message, StepResult) else message)
    except (OverflowError, UnicodeEncodeError) as error:
        raise TransportError(str(error)) from error
    if len(payload) > MAX_FRAME_BYTES:
        raise TransportError(f"a message of {len(payload)} bytes; the most is {MAX_FRAME_BYTES}")
    return _HEADER.pack(len(payload), _KIND_OF[type(message)]) + payload


def _pack_step(result: StepResult) -> _PackedStep:
    events = [_PackedEvent(_EVENT_KIND_OF[type(event)], msgspec.Raw(_encode(event))) for event in result.events]
    return _PackedStep(result.outputs, tuple(events), result.refusals, result.answers)


def _decode(kind: int, payload: bytes) -> Message:
    try:
        message: Message | _PackedStep = _DECODERS[kind].decode(payload)
        if isinstance(message, _PackedStep):
            events = tuple([_EVENT_DECODERS[event.kind].decode(event.payload) for event in message.events])
            return StepResult(message.outputs, events, message.refusals, message.answers)
    except (IndexError, msgspec.DecodeError) as error:
        raise TransportError(f"a frame of kind {kind} does not decode: {error}") from error
    return message


class FrameReader:
    """Bytes in whatever pieces they come, whole messages out."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        buffer = self._buffer
        buffer += data
        messages = []
        begin = 0
        while len(buffer) - begin >= _HEADER.size:
            length, kind = _HEADER.unpack_from(buffer, begin)
            if length > MAX_FRAME_BYTES:
                raise TransportError(f"a frame of {length} bytes is announced; the most is {MAX_FRAME_BYTES}")
            end = begin + _HEADER.size + length
            if len(buffer) < end:
                break
            messages.append(_decode(kind, bytes(buffer[begin + _HEADER.size : end])))
            begin = end
        del buffer[:begin]
        return messages
