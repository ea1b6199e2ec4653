"""Streams of many servers, as instants and counts of tokens."""

import json

import pytest

from evenflow.replay.request import ObservedRequest, PlannedRequest, Reason, TokenCounts
from evenflow.replay.stream import MAX_LINE_BYTES, StreamError, TokenStream, spread


def observed(max_tokens: int = 10) -> ObservedRequest:
    return ObservedRequest(PlannedRequest(0, "r", 0.0, 5, max_tokens), 0.0)


def event(text: str | None = None, *, finish: str | None = None, usage: int | None = None, **more: object) -> bytes:
    fields: dict[str, object] = {"choices": [{"index": 0, "text": text or "", "finish_reason": finish}], **more}
    if text is None and finish is None:
        fields["choices"] = []
    if usage is not None:
        fields["usage"] = {"prompt_tokens": 5, "completion_tokens": usage, "total_tokens": 5 + usage}
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def read(*reads: bytes, request: ObservedRequest | None = None) -> ObservedRequest:
    """One read a second."""
    request = request or observed()
    stream = TokenStream(request)
    for second, data in enumerate(reads, start=1):
        stream.feed(data, float(second))
    stream.close()
    return request


def counts(request: ObservedRequest) -> list[int]:
    assert request.chunk_tokens is not None
    return list(request.chunk_tokens)


def test_vllm_and_evenflow_count_at_the_end() -> None:
    request = read(event(" a"), event(" b"), event(" c", finish="length"), event(usage=3) + DONE)
    assert list(request.chunk_times) == [1.0, 2.0, 3.0]
    assert (counts(request), request.token_counts) == ([1, 1, 1], TokenCounts.PER_CHUNK)
    assert (request.num_output_tokens, request.num_prompt_tokens, request.finish_reason) == (3, 5, "length")


def test_llama_cpp_counts_beside_the_last_choice() -> None:
    request = read(event(" a"), event(" b"), event("", finish="length", usage=2), DONE)
    assert list(request.chunk_times) == [1.0, 2.0], "the total is no token"
    assert counts(request) == [1, 1]


def test_a_running_count_is_believed_also_where_there_is_no_text() -> None:
    """Half a character is a token without text."""
    request = read(
        event(" a", usage=1), event("", usage=2), event("é", usage=3), event("xy", finish="stop", usage=5), DONE
    )
    assert list(request.chunk_times) == [1.0, 2.0, 3.0, 4.0]
    assert (counts(request), request.token_counts) == ([1, 1, 1, 2], TokenCounts.REPORTED)


def test_what_one_read_brings_is_one_chunk() -> None:
    request = read(event(" a") + event(" b"), event(" c") + event("", finish="length"), event(usage=3))
    assert list(request.chunk_times) == [1.0, 2.0]
    assert (counts(request), request.token_counts) == ([2, 1], TokenCounts.PER_CHUNK)


def test_events_cut_anywhere_are_put_together() -> None:
    whole = event(" a") + event(" bé", finish="length") + event(usage=2) + DONE
    for at in range(1, len(whole) - 1):
        request = read(whole[:at], whole[at:])
        assert sum(counts(request)) == 2


def test_windows_line_ends_comments_and_other_fields_do_no_harm() -> None:
    data = b": ping\r\n\r\nevent: x\r\nid: 3\r\ndata:" + event(" a", finish="stop")[5:].strip() + b"\r\n\r\n"
    assert counts(read(data)) == [1]


def test_a_total_above_the_events_is_spread_by_text() -> None:
    request = read(event("abcdefgh"), event("ab"), event("abcdef", finish="length"), event(usage=8))
    assert (counts(request), request.token_counts) == ([3, 2, 3], TokenCounts.SPREAD)


def test_the_token_that_ends_an_answer_has_no_text() -> None:
    request = read(event(" a"), event(" b", finish="stop"), event(usage=3))
    assert (counts(request), request.token_counts) == ([1, 1], TokenCounts.PER_CHUNK)


def test_without_a_count_every_chunk_is_taken_for_a_token() -> None:
    request = read(event(" a"), event(" b", finish="stop"), DONE)
    assert (counts(request), request.token_counts, request.num_output_tokens) == ([1, 1], TokenCounts.ASSUMED, 2)
    fewer = read(event(" a"), event(" b"), event(" c", finish="stop"), event(usage=2))
    assert (counts(fewer), fewer.token_counts) == ([1, 1, 1], TokenCounts.ASSUMED)


@pytest.mark.parametrize(
    ("total", "weights", "expected"),
    [
        (3, [1, 1, 1], [1, 1, 1]),
        (10, [0, 0], [5, 5]),
        (7, [10, 0, 10], [3, 1, 3]),
        (5, [1], [5]),
        (6, [100, 1, 1], [4, 1, 1]),
    ],
)
def test_spreading_gives_everyone_one_and_sums_to_the_total(
    total: int, weights: list[int], expected: list[int]
) -> None:
    assert list(spread(total, weights)) == expected


def test_cached_tokens_are_noted() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 8}}
    request = read(
        event(" a", finish="stop") + b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n"
    )
    assert request.num_cached_tokens == 8


@pytest.mark.parametrize(
    ("data", "reason", "words"),
    [
        (b"data: {oh\n\n", Reason.MALFORMED, "an event is not what the API says"),
        (b'data: {"choices": [{"text": 5}]}\n\n', Reason.MALFORMED, "Expected `str | null`"),
        (b'data: {"error": {"message": "out of memory"}}\n\n', Reason.SERVER_ERROR, "out of memory"),
        (event(" a"), Reason.CUT_OFF, "without a finish_reason and without [DONE]"),
        (b"", Reason.CUT_OFF, "without a finish_reason"),
        (DONE, Reason.NO_TOKENS, "the server streamed no token, so"),
        (event("", finish="stop", usage=7), Reason.NO_TOKENS, "no token (it counts 7), so"),
        (event(" a") * 85, Reason.TOO_MANY_TOKENS, "sent 85 tokens where 10 were asked for"),
        (b"data: " + b"x" * (MAX_LINE_BYTES + 1), Reason.MALFORMED, "a line of more than"),
    ],
)
def test_a_stream_that_cannot_be_measured_says_why(data: bytes, reason: Reason, words: str) -> None:
    with pytest.raises(StreamError) as caught:
        read(data)
    assert caught.value.failure.reason is reason
    assert words in caught.value.failure.detail


def test_an_error_that_is_null_is_none() -> None:
    assert counts(read(event(" a", finish="stop", error=None))) == [1]


@pytest.mark.parametrize("usage", [-1, 2**31, 2**70, 1.5])
def test_a_count_of_tokens_that_cannot_be_is_refused_and_not_believed(usage: float) -> None:
    with pytest.raises(StreamError) as caught:
        read(event(" a", finish="length", usage=usage))  # type: ignore[arg-type]  # as a server may
    assert caught.value.failure.reason is Reason.MALFORMED
    assert "completion_tokens" in caught.value.failure.detail


def test_an_event_without_a_bottom_is_malformed() -> None:
    with pytest.raises(StreamError, match="an event is not what the API says"):
        read(b'data: {"x":' + b"[" * 100_000 + b"\n")
