"""Messages as bytes between the front and the engine process.

    frame:  | payload length, 4 bytes, big endian | kind, 1 byte | payload: msgpack of one message |

`kind` is the message's place in `_MESSAGES`. A step, whatever it gave, is one frame, so each side pays for one write,
one wake-up and one read per step. Decoding is strict: a frame of another shape than its type is a `TransportError`.

msgspec packs the core's dataclasses and tuples as they are, but reads no union of them: an event is packed beside its
place in `_EVENTS`, and read once that is known. A step is packed in one call, whatever is in it: the next step waits
for that, and a model's weights have just swept the caches. A step's record that fed whom the record before it fed, and
gave them what it gave, says only that (`_SAME_AGAIN`): of 120 requests that decode it is 8 us instead of 25 us for the
reader, and one tuple in his memory instead of one per step. So the frames of one connection are read in the order they
were written in.
"""

import struct
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

import msgspec

from evenflow.core.events import Event, StepRecord
from evenflow.core.plan import RequestOutput
from evenflow.core.request import RequestId
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


class _PackedStep(NamedTuple):
    """An event is its kind, and what that has."""

    outputs: tuple[RequestOutput, ...]
    events: tuple[tuple[int, msgspec.Raw], ...]
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

_SAME_AGAIN = len(_EVENTS)
_FED_AT = StepRecord._fields.index("scheduled")
_FED_END = _FED_AT + 2
assert StepRecord._fields[_FED_AT:_FED_END] == ("scheduled", "emitted")
_OTHER_TYPES = list(StepRecord.__annotations__.values())
del _OTHER_TYPES[_FED_AT:_FED_END]
# A tuple type that is made from the record's fields is no type that a checker knows.
_other_decoder: msgspec.msgpack.Decoder[tuple[Any, ...]] = msgspec.msgpack.Decoder(
    tuple.__class_getitem__(tuple(_OTHER_TYPES))
)
_Fed = tuple[tuple[tuple[RequestId, int], ...], tuple[RequestId, ...]]


def encode(message: Message) -> bytes:
    """The message as one frame that needs none before it. Raises TransportError like `FrameWriter`."""
    return FrameWriter().encode(message)


class FrameWriter:
    """The messages of one connection as frames, in order."""

    __slots__ = ("_fed",)

    def __init__(self) -> None:
        self._fed: _Fed | None = None  # of the last record that was written

    def encode(self, message: Message) -> bytes:
        """Raises TransportError if there is no such frame: too long, or a number or text msgpack lacks."""
        try:
            payload = _encode(self._pack_step(message) if isinstance(message, StepResult) else message)
            if len(payload) > MAX_FRAME_BYTES:
                raise TransportError(f"a message of {len(payload)} bytes; the most is {MAX_FRAME_BYTES}")
        except (OverflowError, UnicodeEncodeError) as error:
            self._fed = None
            raise TransportError(str(error)) from error
        except TransportError:
            self._fed = None  # it is not sent, so nothing may refer to it
            raise
        return _HEADER.pack(len(payload), _KIND_OF[type(message)]) + payload

    def _pack_step(self, result: StepResult) -> tuple[object, ...]:
        """As a `_PackedStep` is read."""
        events: list[tuple[int, Event | tuple[object, ...]]] = []
        for event in result.events:
            if type(event) is StepRecord:
                last = self._fed
                fed: Any = event[_FED_AT:_FED_END]  # Any: no checker knows the types in a slice
                # The engine tells the same with the same objects; to compare what is in them would cost what it saves.
                if last is not None and last[0] is fed[0] and last[1] is fed[1]:
                    events.append((_SAME_AGAIN, event[:_FED_AT] + event[_FED_END:]))
                    continue
                self._fed = fed
            events.append((_EVENT_KIND_OF[type(event)], event))
        return result.outputs, events, result.refusals, result.answers


class FrameReader:
    """Bytes in whatever pieces they come, whole messages out."""

    __slots__ = ("_buffer", "_fed")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._fed: _Fed | None = None  # of the last record that was read

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
            messages.append(self._decode(kind, bytes(buffer[begin + _HEADER.size : end])))
            begin = end
        del buffer[:begin]
        return messages

    def _decode(self, kind: int, payload: bytes) -> Message:
        try:
            message: Message | _PackedStep = _DECODERS[kind].decode(payload)
            if isinstance(message, _PackedStep):
                events = tuple(map(self._unpack_event, message.events))
                return StepResult(message.outputs, events, message.refusals, message.answers)
        except (IndexError, msgspec.DecodeError) as error:
            raise TransportError(f"a frame of kind {kind} does not decode: {error}") from error
        return message

    def _unpack_event(self, packed: tuple[int, msgspec.Raw]) -> Event:
        kind, payload = packed
        if kind == _SAME_AGAIN:
            if self._fed is None:
                raise TransportError("a record is like the one before it, and there is none")
            values = _other_decoder.decode(payload)
            return StepRecord._make(values[:_FED_AT] + self._fed + values[_FED_AT:])
        event: Event = _EVENT_DECODERS[kind].decode(payload)
        if isinstance(event, StepRecord):
            self._fed = event.scheduled, event.emitted
        return event
