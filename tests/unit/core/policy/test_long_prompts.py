"""Limits for long prompts: few at once, a share of each step, and steady progress."""

import pytest

from evenflow.core.policy.bound import Limits
from evenflow.core.policy.long_prompts import Limited, PrefillShares, Unlimited
from evenflow.core.request import Request, RequestId, RequestState, SamplingParams

LIMITED = Limited(threshold=10, max_in_progress=2, share=0.5, min_tokens=4)
LIMITS = Limits(max_num_seqs=4, max_num_batched_tokens=64, max_model_len=100, num_blocks=50, block_size=4)


def prompt(count: int) -> Request:
    return Request(RequestId("a"), (1,) * count, SamplingParams(), 0.0)


def in_progress(*counts: int) -> list[RequestState]:
    return [RequestState(prompt(count), key=(0,)) for count in counts]


def test_prompts_above_the_threshold_are_long() -> None:
    assert [LIMITED.is_long(prompt(n)) for n in (10, 11)] == [False, True]
    assert not Unlimited().is_long(prompt(10_000))


def test_without_limits_short_ones_may_have_everything() -> None:
    assert Unlimited().shares(64, [], 99).short_tokens == 64


def test_long_prompts_share_a_part_and_the_first_has_some_tokens_to_itself() -> None:
    assert LIMITED.shares(64, in_progress(50, 50), 99) == PrefillShares(long_tokens=32, short_tokens=60)


def test_long_prompts_take_what_short_ones_do_not_want() -> None:
    assert LIMITED.shares(64, in_progress(50), 20) == PrefillShares(long_tokens=44, short_tokens=60)


def test_nothing_is_kept_when_no_long_prompt_is_in_progress() -> None:
    assert LIMITED.shares(64, [], 99).short_tokens == 64


@pytest.mark.parametrize(("tokens", "remaining", "kept"), [(3, 50, 3), (64, 2, 2), (0, 50, 0)])
def test_no_more_is_kept_than_there_is_or_than_is_wanted(tokens: int, remaining: int, kept: int) -> None:
    assert LIMITED.shares(tokens, in_progress(remaining), 99).short_tokens == tokens - kept


def test_the_bounds_say_how_long_the_longest_takes() -> None:
    values = {bound.name: bound.value for bound in LIMITED.bounds(LIMITS, 2)}
    assert values == {"long_prefills": 2, "long_prompt_share": 32, "long_prefill_steps": 50}
    assert Unlimited().bounds(LIMITS, 2) == ()


def test_without_guaranteed_prefill_a_long_prompt_has_no_bound() -> None:
    (bound,) = (b for b in LIMITED.bounds(LIMITS, 0) if b.name == "long_prefill_steps")
    assert bound.value is None
