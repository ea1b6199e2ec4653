"""Every order piece ranks any two requests one way round, for ever, and displaces only down that ranking."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.core.policy.order import ByPriority, EarliestDeadline, FirstCome, Order, ShortestPrompt
from evenflow.core.request import Request, RequestId, SamplingParams

ORDERS = [FirstCome(), ByPriority(), ShortestPrompt(1.0, 0.25), EarliestDeadline(1.0)]


@st.composite
def request_lists(draw: st.DrawFn) -> list[Request]:
    """Few different times and priorities, so that ties are common."""
    count = draw(st.integers(1, 6))
    return [
        Request(
            RequestId(f"r{index}"),
            (1,) * draw(st.integers(1, 8)),
            SamplingParams(),
            draw(st.sampled_from([0.0, 0.5, 1.0, 1e9])),
            priority=draw(st.integers(-2, 2)),
            ttft_deadline=draw(st.sampled_from([None, 0.25, 1.5, 2e9])),
        )
        for index in range(count)
    ]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.name)
@given(requests=request_lists())
def test_any_arrangement_is_sorted_into_the_same_line(order: Order, requests: list[Request]) -> None:
    accepted = {request.id: (*order.key(request), number) for number, request in enumerate(requests)}
    assert len(set(accepted.values())) == len(requests)
    line = sorted(requests, key=lambda request: accepted[request.id])
    for arrangement in list(permutations(requests))[:24]:
        assert sorted(arrangement, key=lambda request: accepted[request.id]) == line


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.name)
@given(requests=request_lists())
def test_a_request_displaces_only_less_deserving_ones(order: Order, requests: list[Request]) -> None:
    for one in requests:
        assert not order.displaces(one, one)
        for other in requests:
            if order.displaces(one, other):
                assert order.key(one) < order.key(other)
                assert not order.displaces(other, one)


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.name)
@given(requests=request_lists())
def test_who_displaces_somebody_displaces_everybody_behind_them(order: Order, requests: list[Request]) -> None:
    """Victims are sought from the back and the search stops at the first that may stay."""
    line = sorted(requests, key=order.key)
    for waiting in requests:
        verdicts = [order.displaces(waiting, running) for running in line]
        assert verdicts == sorted(verdicts)
