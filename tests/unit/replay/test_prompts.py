"""Content of prompts: exact in length, shared where blocks are, new with every seed."""

import json
from dataclasses import replace

import pytest

from evenflow.core.errors import ConfigError
from evenflow.replay.connection import parse_url
from evenflow.replay.prompts import GivenOr, IdPrompts, WordPrompts
from evenflow.replay.request import PlannedRequest
from evenflow.replay.target import Endpoint, RequestWriter, Target
from evenflow.workload.trace import PrefixBlocks

POOL = (7, 88, 999, 10_000)


def plan(num: int, index: int = 0, **fields: object) -> PlannedRequest:
    return replace(PlannedRequest(index, f"r{index}", 0.0, num, 4), **fields)  # type: ignore[arg-type]  # its own fields


def ids(prompts: IdPrompts, request: PlannedRequest) -> list[int]:
    return list(json.loads(prompts.prompt(request)))


@pytest.mark.parametrize("num", [1, 2, 511, 512, 513, 100_000])
def test_a_prompt_has_exactly_the_tokens_asked_for(num: int) -> None:
    found = ids(IdPrompts(POOL, 1), plan(num))
    assert len(found) == num
    assert set(found) <= set(POOL)


def test_every_id_of_the_pool_is_used_about_equally() -> None:
    found = ids(IdPrompts(range(100, 110), 1), plan(20_000))
    for token_id in range(100, 110):
        assert found.count(token_id) == pytest.approx(2000, rel=0.1)


def test_content_depends_on_the_seed_and_on_the_request() -> None:
    pool = range(1000)
    same = ids(IdPrompts(pool, 1), plan(50))
    assert same == ids(IdPrompts(pool, 1), plan(50))
    assert same != ids(IdPrompts(pool, 2), plan(50))
    assert same != ids(IdPrompts(pool, 1), plan(50, index=1))
    assert ids(IdPrompts(pool, 1), plan(60))[:50] == same


def test_requests_share_exactly_the_blocks_whose_ids_they_share() -> None:
    prompts = IdPrompts(range(10_000), 1)
    a = ids(prompts, plan(40, 0, prefix=PrefixBlocks(16, (5, 6, 7))))
    b = ids(prompts, plan(48, 1, prefix=PrefixBlocks(16, (5, 6, 8))))
    c = ids(prompts, plan(30, 2, prefix=PrefixBlocks(16, (9, 6))))
    assert a[:32] == b[:32]
    assert a[32:40] != b[32:40]
    assert a[:16] != c[:16]
    assert a[16:30] == c[16:], "a block is the same wherever it stands"
    assert ids(prompts, plan(40, 3))[:16] != a[:16]


def test_a_very_long_prompt_is_made_while_others_are_on_time() -> None:
    """The cost is in arrays, not in a loop over tokens: pieces are as wide as the widest."""
    prompts = IdPrompts((1, 99_999), 1)
    assert len(prompts.prompt(plan(100_000))) == 100_000 * len("99999,") + 1


def test_words_are_text_of_as_many_tokens_less_what_the_server_adds() -> None:
    words = WordPrompts((" a", " bb"), 1)
    assert len(json.loads(words.prompt(plan(12))).split()) == 12
    assert len(json.loads(words.adding(1).prompt(plan(12))).split()) == 11
    assert len(json.loads(words.adding(5).prompt(plan(2))).split()) == 1, "no prompt is empty"


def test_text_of_the_trace_is_sent_as_it_is() -> None:
    prompts = GivenOr(IdPrompts(POOL, 1))
    assert json.loads(prompts.prompt(plan(3, text='say "hé"\n'))) == 'say "hé"\n'
    assert len(json.loads(prompts.prompt(plan(3)))) == 3


def test_nothing_to_make_prompts_of() -> None:
    with pytest.raises(ConfigError):
        IdPrompts((), 1)
    with pytest.raises(ConfigError):
        WordPrompts((), 1)


# ---- whole requests


def written(target: Target, request: PlannedRequest) -> tuple[str, dict[str, str], dict[str, object]]:
    head, _, body = RequestWriter(target, IdPrompts(POOL, 1)).write(request).partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert int(headers["content-length"]) == len(body)
    return first, headers, json.loads(body)


def test_a_request_is_well_formed_http() -> None:
    target = Target(
        parse_url("http://[::1]:8000/base/v1/"), "m", api_key="secret", fields={"top_p": 0.5, "ignore_eos": None}
    )
    first, headers, body = written(target, plan(3))
    assert first == "POST /base/v1/completions HTTP/1.1"
    assert (headers["host"], headers["authorization"], headers["x-request-id"]) == ("[::1]:8000", "Bearer secret", "r0")
    assert body.keys() == {"model", "temperature", "stream", "stream_options", "top_p", "max_tokens", "prompt"}
    assert isinstance(body["prompt"], list)


def test_chat_sends_one_message() -> None:
    first, _, body = written(Target(parse_url("https://host"), "m", Endpoint.CHAT), plan(3))
    assert first == "POST /v1/chat/completions HTTP/1.1"
    assert "messages" in body


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "ftp://h", "http://", "http://h:x", "http://h/?q=1", "http://u@h", "http://h:99999"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="url"):
        parse_url(url)


def test_what_would_break_the_head_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be part of an HTTP head"):
        Target(parse_url("http://h"), "m", api_key="a\r\nx: y")
