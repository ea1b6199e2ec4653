"""Server-sent events of an OpenAI-compatible stream, as the instants at which tokens came.

    data: {"choices": [{"text": " one", "finish_reason": null}]}          a token, or several
    data: {"choices": [{"delta": {"reasoning_content": "hm"}}]}           a token too: the model has begun to answer
    data: {"choices": [{"delta": {"role": "assistant", "content": ""}}]}  no token
    data: {"choices": [], "usage": {"completion_tokens": 44, ...}}        how many there were
    data: [DONE]

What comes with one read of the socket is one chunk: its tokens have one time stamp. How many tokens a chunk has is
known if the server says so with each event, or if there were as many events as tokens; else the server's total is
spread over the chunks by the length of their text, and marked as such.
"""

from array import array
from collections.abc import Sequence
from typing import Annotated

import msgspec

from evenflow.replay.request import Failure, ObservedRequest, Reason, TokenCounts

MAX_LINE_BYTES = 4 * 2**20
_SHOWN = 200
# A server that ignores max_tokens may never stop.
_MOST_EVENTS_FACTOR = 2
_MOST_EVENTS_MORE = 64


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class _PromptDetails(msgspec.Struct):
    cached_tokens: _Count | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: object = None


_EVENT = msgspec.json.Decoder(_Event)


class StreamError(Exception):
    """The stream cannot be read on."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.failure = Failure(reason, detail)


class TokenStream:
    """Feeds one observed request."""

    __slots__ = ("_buffer", "_cumulative", "_done", "_most_events", "_num_events", "_observed", "_reported")

    def __init__(self, observed: ObservedRequest) -> None:
        self._observed = observed
        self._buffer = b""
        self._done = False
        self._num_events = 0
        self._most_events = observed.plan.max_tokens * _MOST_EVENTS_FACTOR + _MOST_EVENTS_MORE
        self._reported = 0  # tokens so far, by the usage that comes with each event
        self._cumulative: array[int] = array("l")  # the same, at each chunk

    def feed(self, data: bytes, now: float) -> None:
        """Raises StreamError."""
        lines = (self._buffer + data if self._buffer else data).split(b"\n")
        self._buffer = lines.pop()
        if len(self._buffer) > MAX_LINE_BYTES:
            raise StreamError(Reason.MALFORMED, f"the server sent a line of more than {MAX_LINE_BYTES} bytes")
        for line in lines:
            if line.startswith(b"data:"):
                self._take(line[5:].strip(), now)

    def _take(self, payload: bytes, now: float) -> None:
        if payload == b"[DONE]":
            self._done = True
            return
        try:
            event = _EVENT.decode(payload)
        except (msgspec.MsgspecError, RecursionError) as error:
            shown = payload[:_SHOWN].decode(errors="replace")
            raise StreamError(Reason.MALFORMED, f"an event is not what the API says ({error}): {shown}") from error
        if event.error is not None:
            shown = msgspec.json.encode(event.error)[:_SHOWN].decode(errors="replace")
            raise StreamError(Reason.SERVER_ERROR, f"the server reports an error in the stream: {shown}")
        text = ""
        for choice in event.choices:
            text += _text_of(choice)
            if choice.finish_reason is not None:
                self._observed.finish_reason = choice.finish_reason
        more = self._take_usage(event.usage, self._is_running_count(event.choices)) if event.usage is not None else 0
        if text or more > 0:
            self._token(len(text), now)

    def _is_running_count(self, choices: list[_Choice]) -> bool:
        """Some servers put the total beside the last choice; it says nothing of when the tokens came."""
        return bool(choices) and (self._reported > 0 or choices[0].finish_reason is None)

    def _take_usage(self, usage: _Usage, running: bool) -> int:
        """How many more tokens there are than the event before said, if it is a running count."""
        observed = self._observed
        if usage.prompt_tokens is not None:
            observed.num_prompt_tokens = usage.prompt_tokens
        if usage.prompt_tokens_details is not None and usage.prompt_tokens_details.cached_tokens is not None:
            observed.num_cached_tokens = usage.prompt_tokens_details.cached_tokens
        if usage.completion_tokens is None:
            return 0
        observed.num_output_tokens = usage.completion_tokens
        more = usage.completion_tokens - self._reported if running else 0
        if more > 0:
            self._reported = usage.completion_tokens
        return more

    def _token(self, num_chars: int, now: float) -> None:
        observed = self._observed
        self._num_events += 1
        if self._num_events > self._most_events:
            raise StreamError(
                Reason.TOO_MANY_TOKENS,
                f"the server sent {self._num_events} tokens where {observed.plan.max_tokens} were asked for; "
                "it seems to ignore max_tokens",
            )
        if observed.chunk_times and observed.chunk_times[-1] == now:
            observed.chunk_events[-1] += 1
            observed.chunk_chars[-1] += num_chars
            self._cumulative[-1] = self._reported
        else:
            observed.chunk_times.append(now)
            observed.chunk_events.append(1)
            observed.chunk_chars.append(num_chars)
            self._cumulative.append(self._reported)

    def close(self) -> None:
        """The answer is complete as far as HTTP is concerned. Raises StreamError if it is not as a stream."""
        observed = self._observed
        if observed.finish_reason is None and not self._done:
            raise StreamError(Reason.CUT_OFF, "the stream ended without a finish_reason and without [DONE]")
        if not observed.chunk_times:
            said = f" (it counts {observed.num_output_tokens})" if observed.num_output_tokens else ""
            raise StreamError(
                Reason.NO_TOKENS, f"the server streamed no token{said}, so there is no time to the first one"
            )
        total = observed.num_output_tokens
        if total is not None and total == self._reported == self._cumulative[-1]:
            observed.chunk_tokens, observed.token_counts = _differences(self._cumulative), TokenCounts.REPORTED
            return
        observed.chunk_tokens, observed.token_counts = _tokens_per_chunk(observed)
        if total is None:
            observed.num_output_tokens = sum(observed.chunk_tokens)


def _text_of(choice: _Choice) -> str:
    delta = choice.delta
    if delta is None:
        return choice.text or ""
    return (delta.reasoning_content or "") + (delta.reasoning or "") + (delta.content or "")


def _differences(cumulative: "array[int]") -> "array[int]":
    return array("l", (now - before for before, now in zip((0, *cumulative[:-1]), cumulative, strict=True)))


def _tokens_per_chunk(observed: ObservedRequest) -> "tuple[array[int], TokenCounts]":
    events, total = observed.chunk_events, observed.num_output_tokens
    num_events = sum(events)
    if total is None:
        return events, TokenCounts.ASSUMED
    # The token that ends an answer has no text: one more may be counted than was seen.
    if num_events == total or (num_events + 1 == total and observed.finish_reason == "stop"):
        return events, TokenCounts.PER_CHUNK
    if total < len(events):
        return events, TokenCounts.ASSUMED
    return spread(total, observed.chunk_chars), TokenCounts.SPREAD


def spread(total: int, weights: Sequence[int]) -> "array[int]":
    """`total` tokens over the chunks, at least one each, the rest in proportion; they sum to it."""
    assert total >= len(weights)
    rest, whole = total - len(weights), sum(weights) or len(weights)
    shares = array("l")
    given = 0
    seen = 0
    for weight in weights if sum(weights) else [1] * len(weights):
        seen += weight
        upto = round(rest * seen / whole)
        shares.append(1 + upto - given)
        given = upto
    return shares
