"""Whatever a Python caller hands over, a fault is one InvalidRequest that names it."""

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.core.errors import InvalidRequest
from evenflow.core.request import SamplingParams
from evenflow.engine.api import TextOptions
from evenflow.engine.arguments import (
    check_token_ids,
    conversations_of,
    prompt_of,
    prompts_of,
    sampling_of,
    samplings_of,
    text_options,
)

HELLO = {"role": "user", "content": "Hello"}


def shown(value: object) -> str:
    """Without an address: a test has the same name in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))[:40]


# Any: what the types forbid is what is tested.
WRONG_PROMPTS: list[tuple[Any, str]] = [
    (None, "prompts"),
    (5, "prompts"),
    (b"abc", "prompts"),
    ({"prompt": "a"}, "prompts"),
    ({1, 2}, "prompts"),
    (iter("a"), "prompts"),
    (np.array([1, 2]), "prompts"),
    ([1, 2.0], "prompts[1]"),
    ([1, True], "prompts[1]"),
    ([True], "prompts[0]"),
    ([1, "a"], "prompts[1]"),
    ([1, None], "prompts[1]"),
    ([1.0], "prompts[0]"),
    (["a", 1], "prompts[1]"),
    (["a", None], "prompts[1]"),
    (["a", [1, 2.5]], "prompts[1][1]"),
    ([[1], [False]], "prompts[1][0]"),
    (["a", b"b"], "prompts[1]"),
    ([np.array([1])], "prompts[0]"),
]


@pytest.mark.parametrize(("prompts", "param"), WRONG_PROMPTS, ids=lambda value: type(value).__name__)
def test_wrong_prompts_are_named(prompts: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        prompts_of(prompts)
    assert caught.value.param == param
    assert caught.value.message.startswith(f"{param} must be ")


def test_good_prompts_come_as_several() -> None:
    assert prompts_of("a") == ["a"]
    mixed: list[str | Sequence[int]] = ["a", [1, 2], (3,)]
    assert prompts_of(mixed) == ["a", (1, 2), (3,)]
    assert prompts_of([1, 2]) == [(1, 2)]
    assert prompts_of(range(3)) == [(0, 1, 2)]
    assert prompts_of([]) == []
    ids = prompt_of(list(np.array([7, 8])))
    assert ids == (7, 8)
    assert all(type(token_id) is int for token_id in ids)


def test_an_array_is_told_how_it_becomes_a_list() -> None:
    with pytest.raises(
        InvalidRequest, match=r"^prompt must be text or a list of token ids, not ndarray.*tolist\(\) is"
    ):
        prompt_of(np.array([1, 2]))  # type: ignore[arg-type]


WRONG_MESSAGES: list[tuple[Any, str]] = [
    (None, "messages"),
    ("Hello", "messages"),
    (HELLO, "messages"),
    (["Hello"], "messages[0]"),
    ([HELLO, None], "messages[1]"),
    ([[HELLO], "Hello"], "messages[1]"),
    ([[HELLO], [5]], "messages[1][0]"),
    ([[]], "messages[0]"),
    ([{"role": "user"}], "messages[0].content"),
    ([{"content": "Hello"}], "messages[0].role"),
    ([{"role": "user", "content": ["Hello"]}], "messages[0].content"),
    ([{"role": 1, "content": "Hello"}], "messages[0].role"),
]


@pytest.mark.parametrize(("messages", "param"), WRONG_MESSAGES, ids=shown)
def test_wrong_messages_are_named(messages: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        conversations_of(messages)
    assert caught.value.param == param


def test_good_messages_come_as_several_conversations() -> None:
    assert conversations_of([HELLO, HELLO]) == [[HELLO, HELLO]]
    assert conversations_of([[HELLO], [HELLO]]) == [[HELLO], [HELLO]]
    assert conversations_of([]) == []


WRONG_SAMPLINGS: list[tuple[Any, str]] = [
    ("greedy", "sampling"),
    ({"max_tokens": 1}, "sampling"),
    (5, "sampling"),
    ([SamplingParams(), 5], "sampling[1]"),
    ([{"n": 1}, SamplingParams()], "sampling[0]"),
    ([SamplingParams()], "sampling"),
    (TextOptions(), "sampling"),
]


@pytest.mark.parametrize(("sampling", "param"), WRONG_SAMPLINGS, ids=shown)
def test_wrong_sampling_is_named(sampling: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        samplings_of(sampling, 2)
    assert caught.value.param == param


def test_sampling_is_for_all_or_one_for_each() -> None:
    greedy = SamplingParams(temperature=0)
    assert samplings_of(None, 2) == [SamplingParams()] * 2
    assert samplings_of(greedy, 2) == [greedy, greedy]
    assert samplings_of((greedy, SamplingParams()), 2) == [greedy, SamplingParams()]
    assert sampling_of(None) == SamplingParams()


@pytest.mark.parametrize("stop", [None, 5, ["a", 5], [b"a"], {"a"}, b"a", True])
def test_wrong_stop_strings_are_named(stop: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"^stop must be "):
        text_options(stop, None)


def test_stop_strings_are_added_to_those_of_the_options() -> None:
    options = text_options(["b"], TextOptions(stop=("a",), skip_special_tokens=False))
    assert options == TextOptions(stop=("a", "b"), skip_special_tokens=False)
    with pytest.raises(InvalidRequest, match=r"^text must be TextOptions, not dict"):
        text_options((), {"stop": "a"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fields",
    [
        {"stop": "a"},
        {"stop": ["a"]},
        {"stop": (5,)},
        {"include_stop_str_in_output": "yes"},
        {"skip_special_tokens": 1},
        {"min_tokens": 1.0},
        {"min_tokens": True},
    ],
    ids=str,
)
def test_wrong_text_options_are_named(fields: dict[str, Any]) -> None:
    (name,) = fields
    with pytest.raises(InvalidRequest) as caught:
        TextOptions(**fields)
    assert caught.value.param == name


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


INTEGERS = ("max_tokens", "top_k", "min_tokens", "seed", "logprobs", "prompt_logprobs")
NUMBERS = ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
WRONG_SAMPLING_FIELDS: list[dict[str, Any]] = [
    *({name: value} for name in INTEGERS for value in (2.0, "2", True, [2], math.nan, np.int64(2), Unprintable())),
    *({name: value} for name in NUMBERS for value in ("2", True, [0.5], math.nan, 1j, 10**5000, Unprintable())),
    *({name: None} for name in ("max_tokens", "top_k", "min_tokens", *NUMBERS, "ignore_eos")),
    {"ignore_eos": 1},
    {"stop_token_ids": None},
    {"stop_token_ids": 5},
    {"stop_token_ids": [5]},
    {"stop_token_ids": (5.0,)},
    {"stop_token_ids": (True,)},
    {"stop_token_ids": "5"},
    {"logit_bias": {5: 1.0}},
    {"logit_bias": None},
    {"logit_bias": (5, 1.0)},
    {"logit_bias": ((5,),)},
    {"logit_bias": ((5.0, 1.0),)},
    {"logit_bias": (("5", 1.0),)},
    {"logit_bias": ((5, "1"),)},
    {"logit_bias": ((5, math.nan),)},
]


@pytest.mark.parametrize("fields", WRONG_SAMPLING_FIELDS, ids=lambda fields: next(iter(fields)))
def test_wrong_sampling_fields_are_named(fields: dict[str, Any]) -> None:
    (name,) = fields
    with pytest.raises(InvalidRequest) as caught:
        SamplingParams(**fields)
    assert caught.value.param == name
    assert caught.value.message.startswith(name)
    assert len(caught.value.message) < 300


def test_numbers_may_be_integers_and_numpy_floats() -> None:
    assert SamplingParams(temperature=0, top_p=1, presence_penalty=np.float64(0.5)).greedy


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.binary(max_size=3), st.just({}),
)  # fmt: skip
ANYTHING = st.recursive(VALUES, lambda inner: st.lists(inner, max_size=3), max_leaves=6)


@given(value=ANYTHING, name=st.sampled_from(SamplingParams.__match_args__))
def test_no_value_raises_anything_else(value: object, name: str) -> None:
    for ask in (
        lambda: prompts_of(value),  # type: ignore[arg-type]
        lambda: conversations_of(value),  # type: ignore[arg-type]
        lambda: samplings_of(value, 2),  # type: ignore[arg-type]
        lambda: text_options(value, None),  # type: ignore[arg-type]
        lambda: SamplingParams(**{name: value}),  # type: ignore[arg-type]
    ):
        with suppress(InvalidRequest):
            ask()


def test_token_ids_of_any_size_are_compared_with_the_vocabulary() -> None:
    check_token_ids([0, 9], 10, "prompt")
    check_token_ids([], 10, "prompt")
    for wrong in (-1, 10, 10**5000):
        with pytest.raises(InvalidRequest, match="ids must be between 0 and 9"):
            check_token_ids([5, wrong], 10, "prompt")
