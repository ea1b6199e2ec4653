"""Arrival processes, and what may be done to the times of a trace."""

from itertools import pairwise
from random import Random
from statistics import mean, pstdev

import pytest

from evenflow.core.errors import ConfigError
from evenflow.workload.arrivals import Arrivals, Gamma, Poisson, Stage, Staircase, Uniform, retime
from evenflow.workload.trace import PrefixBlocks, TraceRequest
from evenflow.workload.transform import (
    Ticks,
    fit_to_context,
    scale_lengths,
    spread_ticks,
    ticks_of,
    window,
)


def gaps(process: Arrivals, count: int = 4000) -> list[float]:
    return [b - a for a, b in pairwise(process.times(count, Random(1)))]


@pytest.mark.parametrize(
    ("process", "cv"),
    [
        (Poisson(20.0), 1.0),
        (Gamma(20.0, 1.0), 1.0),
        (Gamma(20.0, 0.25), 2.0),
        (Gamma(20.0, 4.0), 0.5),
        (Uniform(20.0), 0),
    ],
)
def test_a_process_has_its_rate_and_its_burstiness(process: Arrivals, cv: float) -> None:
    found = gaps(process)
    assert mean(found) == pytest.approx(1 / 20, rel=0.06)
    assert pstdev(found) / mean(found) == pytest.approx(cv, rel=0.06, abs=1e-9)


def test_the_number_of_requests_in_a_span_varies_as_in_life() -> None:
    """Rescaling the gaps to an exact total would make the last arrival always the same."""
    ends = [Gamma(10.0, 0.5).times(500, Random(seed))[-1] for seed in range(40)]
    # Variance of the sum of 499 gaps, each of variance 1 / (rate^2 burstiness).
    assert pstdev(ends) == pytest.approx((499 / (100 * 0.5)) ** 0.5, rel=0.3)


def test_the_seed_decides() -> None:
    assert Poisson(5.0).times(50, Random(3)) == Poisson(5.0).times(50, Random(3))
    assert Poisson(5.0).times(50, Random(3)) != Poisson(5.0).times(50, Random(4))


def test_a_staircase_changes_its_rate_and_ends_with_its_last_stage() -> None:
    times = Staircase((Stage(10.0, 60.0), Stage(40.0, 60.0))).times(10_000, Random(2))
    assert times[0] == 0.0
    assert sum(time < 60.0 for time in times) == pytest.approx(600, rel=0.1)
    assert sum(time >= 60.0 for time in times) == pytest.approx(2400, rel=0.1)
    assert 119.0 < times[-1] < 120.0


def test_a_staircase_needs_enough_requests() -> None:
    with pytest.raises(ConfigError, match=r"the trace has 50 requests, which the stages use up after \d\.\d of 60 s"):
        Staircase((Stage(10.0, 60.0),)).times(50, Random(2))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Poisson(0.0),
        lambda: Uniform(-1.0),
        lambda: Gamma(1.0, 0.0),
        lambda: Gamma(float("nan"), 1.0),
        lambda: Staircase(()),
        lambda: Stage(1.0, 0.0),
    ],
)
def test_what_is_no_process_is_refused(wrong: type) -> None:
    with pytest.raises(ConfigError):
        wrong()


def test_retiming_keeps_the_requests() -> None:
    requests = tuple(TraceRequest(0.0, 10 + i, 20 + i, tenant=str(i)) for i in range(5))
    assert [r.tenant for r in retime(requests, Uniform(2.0), Random(0))] == ["0", "1", "2", "3", "4"]
    assert [r.arrival_seconds for r in retime(requests, Uniform(2.0), Random(0))] == [0.0, 0.5, 1.0, 1.5, 2.0]


# ---- windows, ticks, blocks


def at(*times: float) -> tuple[TraceRequest, ...]:
    return tuple(TraceRequest(time, 10, 10) for time in times)


def test_a_window_begins_at_its_start_not_at_its_first_request() -> None:
    assert [r.arrival_seconds for r in window(at(0.0, 10.0, 12.0, 20.0), 9.0, 20.0)] == [1.0, 3.0]
    assert len(window(at(0.0, 10.0), 5.0, None)) == 1


@pytest.mark.parametrize(("start", "end"), [(-1.0, None), (5.0, 5.0), (30.0, None), (1.0, 2.0)])
def test_a_window_without_requests_is_refused(start: float, end: float | None) -> None:
    with pytest.raises(ConfigError):
        window(at(0.0, 10.0), start, end)


def test_requests_of_one_tick_are_spread_up_to_the_next() -> None:
    ticked = at(*[0.0] * 10, *[3.0] * 10, *[30.0] * 10)
    ticks = ticks_of(ticked)
    assert ticks == Ticks(3, 15.0)
    spread = [r.arrival_seconds for r in spread_ticks(ticked, Ticks(3, 3.0), Random(0))]
    assert spread == sorted(spread)
    for first, tick in ((0, 0.0), (10, 3.0), (20, 30.0)):
        group = spread[first : first + 10]
        assert tick <= min(group) < max(group) < tick + 3.0
        assert len(set(group)) == 10


def test_fine_times_are_no_ticks() -> None:
    assert ticks_of(at(*(i * 0.01 for i in range(100)))) is None
    assert ticks_of(at(0.0, 0.0, 0.0)) is None, "too few to tell"


def test_scaling_lengths_keeps_the_share_of_the_prefix_that_is_common() -> None:
    request = TraceRequest(0.0, 6758, 500, prefix=PrefixBlocks(512, tuple(range(14))))
    for factor in (0.1, 0.5, 0.77, 2.0):
        (scaled,) = scale_lengths([request], factor)
        assert scaled.prefix is not None
        assert scaled.prefix.covers(scaled.num_prompt_tokens)
        assert scaled.num_prompt_tokens == pytest.approx(6758 * factor, rel=0.02)
        assert scaled.prefix.block_tokens == pytest.approx(512 * factor, abs=0.5)


def test_cutting_a_prompt_cuts_its_blocks_and_its_text() -> None:
    request = TraceRequest(0.0, 100, 10, prefix=PrefixBlocks(16, tuple(range(7))), text="long")
    (cut,) = fit_to_context([request], 60).requests
    assert (cut.num_prompt_tokens, cut.text) == (50, None)
    assert cut.prefix == PrefixBlocks(16, (0, 1, 2, 3))
    (fits,) = fit_to_context([request], 110).requests
    assert fits == request


def test_text_of_another_length_is_no_longer_that_text() -> None:
    request = TraceRequest(0.0, 100, 10, text="long")
    assert scale_lengths([request], 0.5)[0].text is None
    assert scale_lengths([request], 1.0)[0].text == "long"
