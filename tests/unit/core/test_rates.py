"""How fast the queue drains."""

import pytest

from evenflow.core.rates import DrainRate


def steady(*, steps: int = 50, seconds: float = 0.5, requests: int = 2, tokens: int = 100) -> DrainRate:
    rate = DrainRate()
    for index in range(steps):
        rate.observe(index * seconds, requests, tokens, backlogged=True)
    return rate


def test_nothing_is_known_before_the_queue_has_drained() -> None:
    rate = DrainRate()
    assert rate.seconds_for(1, 1) is None
    rate.observe(0.0, 3, 100, backlogged=True)
    rate.observe(1.0, 0, 0, backlogged=True)
    assert rate.seconds_for(1, 1) is None


def test_a_steady_queue_is_extrapolated_by_the_slower_of_requests_and_tokens() -> None:
    rate = steady()
    assert rate.seconds_for(8, 0) == pytest.approx(2.0, rel=0.05)
    assert rate.seconds_for(0, 800) == pytest.approx(4.0, rel=0.05)
    assert rate.seconds_for(8, 800) == pytest.approx(4.0, rel=0.05)


def test_time_in_which_nobody_waits_does_not_count() -> None:
    rate = steady()
    rate.observe(25.0, 0, 0, backlogged=False)
    rate.observe(1000.0, 1, 10, backlogged=True)
    rate.observe(1000.5, 2, 100, backlogged=True)
    assert rate.seconds_for(8, 0) == pytest.approx(2.0, rel=0.1)


def test_the_past_fades() -> None:
    rate = steady()
    for index in range(100):
        rate.observe(25.0 + index, 1, 50, backlogged=True)
    assert rate.seconds_for(8, 0) == pytest.approx(8.0, rel=0.1)


def test_two_steps_at_one_instant_are_one() -> None:
    rate = steady()
    rate.observe(24.5, 2, 100, backlogged=True)
    assert rate.seconds_for(8, 0) is not None
