"""Messages as bytes and back."""

import dataclasses
import struct
import types
from collections.abc import Iterator
from enum import Enum
from itertools import pairwise
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.core.events import Event, StepRecord
from evenflow.core.request import FinishReason, Request, RequestId, SamplingParams
from evenflow.engine.config import Dtype, EngineConfig
from evenflow.engine.messages import Abort, Add, StepResult
from evenflow.engine.transport import MAX_FRAME_BYTES, Failed, FrameReader, FrameWriter, Message, TransportError, encode
from story import step


def examples(kind: Any) -> Iterator[Any]:  # of any type that a message may hold
    """Values of a type that together use every alternative inside it at least once."""
    kind = getattr(kind, "__supertype__", kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        for argument in arguments:
            yield from examples(argument)
    elif origin is tuple:
        parts = arguments[:1] if arguments[-1] is ... else arguments
        yield from zip(*(_padded(part) for part in parts), strict=True) if arguments[-1] is not ... else ()
        if arguments[-1] is ...:
            yield tuple(examples(parts[0]))
            yield ()
    elif kind is type(None):
        yield None
    elif isinstance(kind, type) and issubclass(kind, Enum):
        yield from kind
    elif isinstance(kind, type) and (dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")):
        yield from _records(kind)
    else:
        yield {int: 7, float: 1.5, str: "é", bool: True, bytes: b"\x00\xff"}[kind]


def _padded(kind: Any) -> list[Any]:
    values = list(examples(kind))
    return (values * 8)[:8]


SAMPLING = SamplingParams(logit_bias=((3, -1.5),), seed=-5, stop_token_ids=(1, 2), logprobs=0, max_tokens=9)

# Records that do not take just any value of their fields' types.
_LIMITED: dict[type, object] = {
    SamplingParams: SAMPLING,
    Request: Request(RequestId("r"), (1, 2), SAMPLING, 1.5, (7,), "salt", "tenant", "batch", -3, ttft_deadline=9.5),
    EngineConfig: EngineConfig(dtype=Dtype.BF16, max_model_len=512, kv_memory="1GiB", watermark=0.5, threads=2),
}


def _records(kind: type) -> Iterator[Any]:
    if kind in _LIMITED:
        yield _LIMITED[kind]
        return
    fields = {name: list(examples(hint)) for name, hint in get_type_hints(kind).items()}
    for index in range(max(len(values) for values in fields.values())):
        yield kind(**{name: values[index % len(values)] for name, values in fields.items()})


ALL_MESSAGES: list[Message] = [example for kind in get_args(Message) for example in examples(kind)]


def test_every_kind_of_message_and_event_comes_back_as_it_was() -> None:
    assert {type(message) for message in ALL_MESSAGES} == set(get_args(Message))
    events = {type(e) for message in ALL_MESSAGES if isinstance(message, StepResult) for e in message.events}
    assert events == set(get_args(Event))
    reader = FrameReader()
    for message in ALL_MESSAGES:
        assert reader.feed(encode(message)) == [message]


def _records_of(message: Message) -> list[StepRecord]:
    assert isinstance(message, StepResult)
    return [event for event in message.events if isinstance(event, StepRecord)]


def test_a_record_like_the_last_one_is_short_comes_back_whole_and_shares_its_tuples() -> None:
    first = step(1, 0.0, 1.0, emitted="a" * 200)
    again = first._replace(step=2, start=1.0, end=2.0)
    other = step(3, 2.0, 3.0, emitted="a" * 200)
    results = [StepResult((), (record,), (), ()) for record in (first, again, other, other._replace(step=4))]
    writer, reader = FrameWriter(), FrameReader()
    frames = [writer.encode(result) for result in results]
    assert [len(frame) < 1000 for frame in frames] == [False, True, False, True]
    received = reader.feed(b"".join(frames))
    assert received == results
    (one,), (two,) = map(_records_of, received[:2])
    assert one.scheduled is two.scheduled
    assert one.emitted is two.emitted


def test_a_record_like_one_that_never_came_is_refused() -> None:
    writer = FrameWriter()
    record = step(1, 0.0, 1.0, emitted="a")
    writer.encode(StepResult((), (record,), (), ()))
    with pytest.raises(TransportError, match="there is none"):
        FrameReader().feed(writer.encode(StepResult((), (record,), (), ())))


def test_nothing_refers_to_a_frame_that_could_not_be_made() -> None:
    writer = FrameWriter()
    record = step(1, 0.0, 1.0, emitted="a")
    with pytest.raises(TransportError):
        writer.encode(StepResult((), (record, record._replace(step=2**70)), (), ()))
    assert FrameReader().feed(writer.encode(StepResult((), (record,), (), ()))) == [StepResult((), (record,), (), ())]


@given(cuts=st.lists(st.integers(0, 10**6), max_size=20))
def test_messages_come_whole_from_bytes_in_any_pieces(cuts: list[int]) -> None:
    data = b"".join(map(encode, ALL_MESSAGES))
    edges = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    reader = FrameReader()
    received = [m for a, b in pairwise(edges) for m in reader.feed(data[a:b])]
    assert received == ALL_MESSAGES


def frame(kind: int, payload: bytes) -> bytes:
    return struct.pack(">IB", len(payload), kind) + payload


@pytest.mark.parametrize(
    "data",
    [
        frame(200, b"\xc0"),
        frame(3, b"\xc0"),
        frame(3, b""),
        frame(4, encode(Failed("a", "b"))[5:]),
        encode(Abort(RequestId("r")))[:5] + b"\x00" * (len(encode(Abort(RequestId("r")))) - 5),
        struct.pack(">IB", MAX_FRAME_BYTES + 1, 4),
        b"HTTP/1.1 200 OK",
    ],
)
def test_anything_that_is_no_message_is_an_error(data: bytes) -> None:
    with pytest.raises(TransportError):
        FrameReader().feed(data)


@given(data=st.binary(max_size=60))
def test_random_bytes_raise_nothing_else(data: bytes) -> None:
    reader = FrameReader()
    try:
        reader.feed(data)
        reader.feed(b"\x00\x00\x00\x02\x04" + data)
    except TransportError:
        pass


def request(**changes: Any) -> Request:
    fields = {"id": RequestId("r"), "prompt_token_ids": (1,), "sampling": SamplingParams(), "arrival_time": 0.0}
    return Request(**{**fields, **changes})


@pytest.mark.parametrize("changes", [{"priority": 1 << 64}, {"prompt_token_ids": (1 << 70,)}])
def test_what_the_format_cannot_hold_is_an_error_of_the_sender(changes: dict[str, Any]) -> None:
    with pytest.raises(TransportError):
        encode(Add(request(**changes)))


def test_a_message_larger_than_a_frame_may_be_is_an_error_of_the_sender() -> None:
    with pytest.raises(TransportError, match="the most is"):
        encode(Failed("x", "y" * (MAX_FRAME_BYTES + 1)))


def test_numbers_that_are_no_numbers_survive() -> None:
    [back] = FrameReader().feed(encode(Add(request(arrival_time=float("inf")))))
    assert isinstance(back, Add)
    assert back.request.arrival_time == float("inf")
    assert FrameReader().feed(encode(Abort(RequestId("r"), FinishReason.STOP)))
