"""The order pieces: who comes before whom, and who may take whose place."""

from evenflow.core.policy.order import ByPriority, EarliestDeadline, FirstCome, ShortestPrompt
from evenflow.core.request import Request, RequestId, SamplingParams


def request(*, at: float = 0.0, priority: int = 0, prompt: int = 3, deadline: float | None = None) -> Request:
    return Request(RequestId("a"), (1,) * prompt, SamplingParams(), at, priority=priority, ttft_deadline=deadline)


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


def test_a_short_prompt_passes_a_long_one_that_came_within_its_allowance() -> None:
    order = ShortestPrompt(max_overtake=30.0, overtake_per_token=0.5)
    long = order.key(request(at=0.0, prompt=20))
    assert order.key(request(at=9.0, prompt=1)) < long
    assert order.key(request(at=9.8, prompt=1)) > long


def test_nobody_is_passed_by_who_comes_later_than_the_longest_overtaking() -> None:
    order = ShortestPrompt(max_overtake=5.0, overtake_per_token=0.5)
    longest = order.key(request(at=0.0, prompt=1000))
    assert order.key(request(at=4.4, prompt=1)) < longest
    assert order.key(request(at=5.01, prompt=1)) > longest


def test_the_earliest_deadline_comes_first() -> None:
    order = EarliestDeadline(max_overtake=60.0)
    assert order.key(request(at=5.0, deadline=7.0)) < order.key(request(at=1.0, deadline=9.0))


def test_without_a_deadline_a_request_counts_as_patient_but_not_for_ever() -> None:
    order = EarliestDeadline(max_overtake=10.0)
    patient = order.key(request(at=0.0))
    assert order.key(request(at=4.0, deadline=8.0)) < patient
    assert patient < order.key(request(at=10.5, deadline=10.6))
    assert order.key(request(at=0.0, deadline=999.0)) == patient
