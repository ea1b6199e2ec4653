"""Sources that hold text instead of lengths. Their tokens are counted, their prompts are sent as they are.

    sharegpt       JSON array: {"conversations": [{"from": "human", "value": ...}, {"from": "gpt", "value": ...}, ...]}
    openai-batch   JSON lines: {"custom_id": ..., "body": {"prompt": ... | "messages": [...], "max_tokens": ...}}
    vllm-custom    JSON lines: {"prompt": ..., "output_tokens": ...}

None has times: they need an arrival process.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import TypeVar

import msgspec

from evenflow.workload.format_table import CountTokens, Format
from evenflow.workload.rows import Row
from evenflow.workload.trace import TraceRequest

ShapeT = TypeVar("ShapeT")


class _Turn(msgspec.Struct):
    speaker: str = msgspec.field(name="from", default="")
    value: str = ""


class _Part(msgspec.Struct):
    text: str = ""


class _Message(msgspec.Struct):
    content: str | list[_Part]


class _Body(msgspec.Struct):
    prompt: str | None = None
    messages: list[_Message] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None


_HUMAN = frozenset({"human", "user"})
_ASSISTANT = frozenset({"gpt", "chatgpt", "assistant", "bing", "bard"})


def text_formats(count_tokens: CountTokens) -> tuple[Format, ...]:
    return (
        Format("sharegpt", frozenset({"conversations"}), None, None, _sharegpt(count_tokens)),
        Format("openai-batch", frozenset({"custom_id", "body"}), None, None, _batch(count_tokens)),
        Format("vllm-custom", frozenset({"prompt"}), None, None, _custom(count_tokens)),
    )


def _shape(row: Row, column: str, shape: type[ShapeT]) -> ShapeT:
    try:
        return msgspec.convert(row.cells[column], shape)
    except msgspec.ValidationError as error:
        raise row.error(column, str(error)) from error


def _sharegpt(count_tokens: CountTokens) -> Callable[[Row], TraceRequest]:
    """The first question and its answer. A conversation without them has length 0, and is dropped as such."""

    def request(row: Row) -> TraceRequest:
        turns = _shape(row, "conversations", list[_Turn])
        for asked, answered in pairwise(turns):
            if asked.speaker in _HUMAN and answered.speaker in _ASSISTANT:
                num_prompt, num_output = count_tokens(asked.value), count_tokens(answered.value)
                return TraceRequest(0.0, num_prompt, num_output, text=asked.value)
        return TraceRequest(0.0, 0, 0)

    return request


def _batch(count_tokens: CountTokens) -> Callable[[Row], TraceRequest]:
    def request(row: Row) -> TraceRequest:
        body = _shape(row, "body", _Body)
        most = body.max_completion_tokens or body.max_tokens
        if most is None or most < 1:
            raise row.error("body", "has no max_tokens above 0; the length of the output cannot be known")
        if body.prompt is not None:
            text = body.prompt
        elif body.messages is not None:
            text = "\n".join(_text_of(message) for message in body.messages)
        else:
            raise row.error("body", "has neither a prompt nor messages")
        name = row.text("custom_id")
        return TraceRequest(0.0, count_tokens(text), most, name=name, text=text)

    return request


def _text_of(message: _Message) -> str:
    return message.content if isinstance(message.content, str) else "".join(part.text for part in message.content)


def _custom(count_tokens: CountTokens) -> Callable[[Row], TraceRequest]:
    def request(row: Row) -> TraceRequest:
        text = row.text("prompt")
        return TraceRequest(0.0, count_tokens(text), row.count("output_tokens"), text=text)

    return request


TEXT_COLUMNS = tuple(form.columns for form in text_formats(len))
