"""What a request may ask, and the only ways in which its status may change."""

import dataclasses
from itertools import product
from typing import Any

import pytest

from evenflow.core.errors import InvalidRequest
from evenflow.core.request import (
    MAX_TOP_LOGPROBS,
    TRANSITIONS,
    Request,
    RequestId,
    RequestState,
    RequestStatus,
    SamplingParams,
)

NAN = float("nan")
INFINITY = float("inf")

REFUSED: list[tuple[str, Any]] = [
    ("max_tokens", 0),
    ("temperature", -0.1),
    ("temperature", 101.0),
    ("temperature", NAN),
    ("temperature", INFINITY),
    ("top_p", 0.0),
    ("top_p", 1.01),
    ("top_p", NAN),
    ("top_k", -1),
    ("min_p", -0.1),
    ("min_p", 1.1),
    ("min_p", NAN),
    ("presence_penalty", 2.1),
    ("presence_penalty", NAN),
    ("frequency_penalty", -2.1),
    ("repetition_penalty", 0.0),
    ("repetition_penalty", 1e-300),
    ("repetition_penalty", 101.0),
    ("repetition_penalty", NAN),
    ("logit_bias", ((-1, 1.0),)),
    ("logit_bias", ((1, 100.5),)),
    ("logit_bias", ((1, NAN),)),
    ("seed", 2**63),
    ("seed", -(2**63) - 1),
    ("min_tokens", -1),
    ("min_tokens", 17),
    ("stop_token_ids", (3, -1)),
    ("logprobs", -1),
    ("logprobs", MAX_TOP_LOGPROBS + 1),
    ("prompt_logprobs", -1),
    ("prompt_logprobs", MAX_TOP_LOGPROBS + 1),
]

ACCEPTED: list[tuple[str, Any]] = [
    ("max_tokens", 1),
    ("temperature", 0.0),
    ("temperature", 100.0),
    ("top_p", 1e-9),
    ("min_p", 1.0),
    ("presence_penalty", -2.0),
    ("frequency_penalty", 2.0),
    ("repetition_penalty", 100.0),
    ("logit_bias", ((0, -100.0), (7, 100.0))),
    ("seed", 2**63 - 1),
    ("seed", -(2**63)),
    ("min_tokens", 16),
    ("logprobs", 0),
    ("prompt_logprobs", MAX_TOP_LOGPROBS),
]


def sampling(**changes: Any) -> SamplingParams:  # Any: fields of every type
    return dataclasses.replace(SamplingParams(max_tokens=16), **changes)


@pytest.mark.parametrize(("field", "value"), REFUSED)
def test_a_wrong_value_is_refused_by_the_name_of_its_field(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=field) as refused:
        sampling(**{field: value})
    assert refused.value.param == field


@pytest.mark.parametrize(("field", "value"), ACCEPTED)
def test_the_ends_of_a_range_are_inside(field: str, value: Any) -> None:
    assert getattr(sampling(**{field: value}), field) == value


def test_temperature_zero_is_greedy() -> None:
    assert sampling(temperature=0.0).greedy
    assert not sampling(temperature=0.1).greedy


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="prompt must not be empty") as refused:
        Request(RequestId("a"), (), SamplingParams(), 0.0)
    assert refused.value.param == "prompt"


def state(params: SamplingParams) -> RequestState:
    return RequestState(Request(RequestId("a"), (5, 6, 7), params, 0.0, eos_token_ids=(2, 3)), key=(0,))


def test_a_state_begins_with_the_prompt_known_and_nothing_computed() -> None:
    fresh = state(sampling())
    assert fresh.token_ids == [5, 6, 7]
    assert (fresh.num_tokens, fresh.num_prompt_tokens, fresh.num_output_tokens) == (3, 3, 0)
    assert (fresh.num_computed_tokens, fresh.num_remaining_tokens) == (0, 3)
    assert fresh.status is RequestStatus.WAITING


def test_an_output_token_is_known_and_not_computed() -> None:
    running = state(sampling())
    running.num_computed_tokens = 3
    running.token_ids.append(9)
    assert (running.num_tokens, running.num_output_tokens, running.num_remaining_tokens) == (4, 1, 1)


def test_the_models_end_tokens_stop_unless_ignored() -> None:
    assert state(sampling(stop_token_ids=(9,))).stop_token_ids == {2, 3, 9}
    assert state(sampling(stop_token_ids=(9,), ignore_eos=True)).stop_token_ids == {9}


@pytest.mark.parametrize(("before", "after"), list(product(RequestStatus, RequestStatus)))
def test_status_moves_only_along_the_table(before: RequestStatus, after: RequestStatus) -> None:
    moving = state(sampling())
    moving.status = before
    if after in TRANSITIONS[before]:
        moving.move_to(after)
        assert moving.status is after
    else:
        with pytest.raises(AssertionError):
            moving.move_to(after)


def test_finished_is_reached_from_everywhere_and_left_by_nobody() -> None:
    assert not TRANSITIONS[RequestStatus.FINISHED]
    assert all(RequestStatus.FINISHED in edges for status, edges in TRANSITIONS.items() if edges)
    assert TRANSITIONS.keys() == set(RequestStatus)


@pytest.mark.parametrize("field", ["id", "cache_salt", "tenant", "service_class"])
def test_half_a_surrogate_pair_is_no_text(field: str) -> None:
    fields: dict[str, Any] = {"id": "r", "prompt_token_ids": (1,), "sampling": SamplingParams(), "arrival_time": 0.0}
    with pytest.raises(InvalidRequest) as caught:
        Request(**{**fields, field: "a\ud800"})
    assert caught.value.param == field
