"""Medians, shares and tails, from small numbers that can be checked by hand."""

from array import array

import pytest

from evenflow.bench.peers.contenders import Precision
from evenflow.bench.peers.engines import Batch, SingleStream, check_counts
from evenflow.bench.peers.figures import Entry, Latency, Throughput, best_peer_rate, decode_step, middle
from evenflow.bench.peers.messages import ContenderFailed, Step
from evenflow.replay.request import ObservedRequest, PlannedRequest


def batches(*wall_seconds: float) -> list[Batch]:
    return [Batch(seconds, 600, 300) for seconds in wall_seconds]


def test_rates_are_those_of_the_median_round() -> None:
    throughput = Throughput.of(10, batches(4.0, 2.0, 3.0))
    assert throughput.seconds == 3.0
    assert throughput.output_tokens_per_second == 100.0
    assert throughput.total_tokens_per_second == 300.0
    assert throughput.requests_per_second == pytest.approx(10 / 3)
    assert throughput.wall_seconds == (4.0, 2.0, 3.0)
    assert throughput.share_of_products is None


def test_a_share_is_of_its_own_round() -> None:
    assert Throughput.of(10, batches(4.0, 2.0, 3.0), [2.0, 1.2, 2.7]).share_of_products == 0.6


def test_a_floor_for_every_round_or_none() -> None:
    with pytest.raises(ValueError, match="shorter"):
        Throughput.of(10, batches(4.0), [2.0, 1.0])


def test_w2_is_the_median_of_each_figure() -> None:
    streams = [SingleStream(5.0, 30.0), SingleStream(7.0, 10.0), SingleStream(6.0, 20.0)]
    assert middle(streams) == SingleStream(6.0, 20.0)


def observed(ttft: float, gaps: int) -> ObservedRequest:
    request = ObservedRequest(PlannedRequest(0, "r", 0.0, 1, gaps + 1), intended=100.0)
    request.chunk_times = array("d", [100.0 + ttft + 0.01 * index for index in range(gaps + 1)])
    request.chunk_tokens = array("l", [1] * (gaps + 1))
    return request


def test_latencies_of_all_rounds_are_one_sample() -> None:
    latency = Latency.of(3.0, [[observed(0.1, 50)] * 60, [observed(0.2, 50)] * 40])
    assert latency.ttft.num_observations == 100
    assert latency.ttft.p50 == pytest.approx(100.0)
    assert latency.ttft.p95 == pytest.approx(200.0)
    assert latency.ttft.p99 is None, "no 5 of 100 observations lie above it"
    assert latency.itl.num_observations == 5000
    assert latency.itl.p99 == pytest.approx(10.0)


def test_only_steps_in_which_all_decode_and_nobody_else_is_computed_tell_the_time_of_a_decode_step() -> None:
    steps = [
        Step(0.9, 2000, 2, 1),  # both prompts, and the first tokens
        Step(0.010, 2, 2, 2002),
        Step(0.030, 2, 2, 2004),
        Step(0.020, 2, 2, 2006),
        Step(0.5, 1, 1, 1004),  # one is done
        Step(0.5, 2, 1, 2006),  # the last tokens of a prompt beside one that decodes
        Step(0.5, 2, 2, 800),  # short prompts of one token
    ]
    time = decode_step(1000, 2, steps)
    assert time is not None
    assert (time.context, time.running) == (1000, 2)
    assert time.milliseconds == pytest.approx(20.0)
    assert decode_step(1000, 3, steps) is None


def entry(name: str, engine: str, seconds: float | None, first_requests: int | None = None) -> Entry:
    w1 = None if seconds is None else Throughput.of(10, batches(seconds))
    return Entry(name, engine, Precision.BF16, first_requests, w1=w1)


def test_the_rates_of_w3_are_set_by_the_fastest_peer_that_ran_all_of_w1() -> None:
    entries = [
        entry("ours", "evenflow", 1.0),
        entry("slow", "a", 8.0),
        entry("fast", "b", 5.0),
        entry("a part", "c", 2.0, first_requests=3),
        entry("failed", "d", None),
    ]
    assert best_peer_rate(entries) == 2.0
    assert best_peer_rate(entries[:1]) is None


def test_counts_that_are_right_are_summed() -> None:
    assert check_counts("output", [3, 4], [3, 4]) == 7


@pytest.mark.parametrize(
    ("seen", "saying"),
    [([3, 5], "8 output tokens instead of 7; 1 of 2"), ([3], "3 output tokens instead of 7; .* and 1 were answered")],
)
def test_counts_that_are_wrong_are_a_failure(seen: list[int], saying: str) -> None:
    with pytest.raises(ContenderFailed, match=saying):
        check_counts("output", seen, [3, 4])
