"""The policy pieces, each alone."""

import pytest
from evenflow.core.budget import FixedBudget

from evenflow.core.errors import ConfigError
from evenflow.core.plan import WaitReason
from evenflow.core.policy import (
    ByPriority,
    DecodeFirst,
    FirstCome,
    FlowId,
    OneFlow,
    ReserveKnown,
    SchedulingPolicy,
    TokenSplit,
)
from evenflow.core.request import Request, RequestId, RequestState, SamplingParams


def request(*, at: float = 0.0, priority: int = 0, tenant: str = "") -> Request:
    return Request(RequestId("a"), (1, 2, 3), SamplingParams(), at, priority=priority, tenant=tenant)


def test_first_come_ranks_by_arrival_only() -> None:
    order = FirstCome()
    assert order.key(request(at=1.0, priority=9)) < order.key(request(at=2.0, priority=0))
    assert not order.displaces(request(at=1.0), request(at=2.0))


def test_priority_ranks_before_arrival() -> None:
    order = ByPriority()
    assert order.key(request(at=2.0, priority=0)) < order.key(request(at=1.0, priority=1))
    assert order.key(request(at=1.0, priority=1)) < order.key(request(at=2.0, priority=1))


def test_only_a_smaller_priority_displaces() -> None:
    order = ByPriority()
    assert order.displaces(request(at=9.0, priority=0), request(at=1.0, priority=1))
    assert not order.displaces(request(at=1.0, priority=1), request(at=9.0, priority=1))
    assert not order.displaces(request(priority=2), request(priority=1))


def test_one_flow_holds_everybody() -> None:
    assert OneFlow().flow_of(request(tenant="x")) == OneFlow().flow_of(request(tenant="y"))
    assert OneFlow().pick([FlowId("all")]) == "all"


@pytest.mark.parametrize(
    ("budget", "num_decodes", "decode_tokens", "prefill_tokens"),
    [(8, 0, 0, 8), (8, 3, 3, 5), (8, 8, 8, 0), (2, 5, 2, 0)],
)
def test_decodes_come_first_and_prefills_share_the_rest(
    budget: int, num_decodes: int, decode_tokens: int, prefill_tokens: int
) -> None:
    split = DecodeFirst().split(budget, num_decodes)
    assert split == TokenSplit(decode_tokens, prefill_tokens, WaitReason.BUDGET)


def test_everything_known_is_reserved() -> None:
    state = RequestState(request(), key=(0,))
    state.token_ids.append(4)
    assert ReserveKnown().tokens(state) == 4


def test_the_default_policy_names_its_pieces() -> None:
    policy = SchedulingPolicy()
    names = [policy.budget.name, policy.order.name, policy.fairness.name, policy.interleave.name, policy.reserve.name]
    assert names == ["fixed", "fcfs", "none", "decode-first", "prompt"]


def test_a_fixed_budget_is_the_same_in_every_step() -> None:
    assert [FixedBudget(7).tokens() for _ in range(3)] == [7, 7, 7]


def test_a_budget_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_num_batched_tokens"):
        FixedBudget(0)
