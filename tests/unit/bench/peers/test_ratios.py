"""Which figures are compared with whose, and which way is better."""

import pytest

from evenflow.bench.peers.contenders import Precision
from evenflow.bench.peers.engines import Batch, SingleStream
from evenflow.bench.peers.figures import Entry, Latency, Throughput
from evenflow.bench.peers.ratios import Ratio, ratios
from evenflow.observe.tails import Tail

BF16, INT8, FOUR_BIT = Precision.BF16, Precision.INT8, Precision.FOUR_BIT


def entry(name: str, precision: Precision, engine: str = "peer", **figures: object) -> Entry:
    made = Entry(name, engine, precision)
    for figure, value in figures.items():
        setattr(made, figure, value)
    return made


def took(seconds: float, floor: float | None = None) -> Throughput:
    return Throughput.of(10, [Batch(seconds, 100, 100)], [] if floor is None else [floor])


def only(found: list[Ratio], what: str) -> Ratio:
    [ratio] = [each for each in found if each.what == what]
    return ratio


def test_int8_is_compared_with_the_fastest_peer_of_any_precision() -> None:
    entries = [
        entry("ours", INT8, "evenflow", w1=took(2.0)),
        entry("slow", INT8, w1=took(8.0)),
        entry("fast", BF16, w1=took(4.0)),
        entry("nothing", BF16),
    ]
    ratio = only(ratios(entries), "W1 output tokens/s, any precision")
    assert (ratio.own, ratio.rival) == ("ours", "fast")
    assert (ratio.own_figure, ratio.rival_figure, ratio.ratio) == (50.0, 25.0, 2.0)
    assert ratio.held


def test_bf16_is_compared_with_bf16() -> None:
    entries = [
        entry("ours", BF16, "evenflow", w1=took(4.0)),
        entry("int8", INT8, w1=took(1.0)),
        entry("bf16", BF16, w1=took(4.4)),
    ]
    ratio = only(ratios(entries), "W1 output tokens/s, bf16")
    assert ratio.rival == "bf16"
    assert ratio.ratio == pytest.approx(1.1)
    assert not ratio.held


def test_a_part_of_the_work_is_compared_with_nothing() -> None:
    entries = [entry("ours", BF16, "evenflow", w1=took(4.0)), entry("part", BF16, w1=took(1.0), first_requests=3)]
    assert ratios(entries) == []


def test_short_times_are_good_times() -> None:
    entries = [
        entry("ours", INT8, "evenflow", w2=SingleStream(ttft_ms=50.0, ms_per_token=7.0)),
        entry("prompt", INT8, w2=SingleStream(ttft_ms=40.0, ms_per_token=14.0)),
        entry("steady", INT8, w2=SingleStream(ttft_ms=80.0, ms_per_token=9.8)),
        entry("small", FOUR_BIT, w2=SingleStream(ttft_ms=10.0, ms_per_token=5.0)),
    ]
    found = ratios(entries)
    first, rate = only(found, "W2 first token, int8"), only(found, "W2 ms per token, int8")
    assert (first.rival, first.ratio, first.held) == ("prompt", 0.8, False)
    assert rate.rival == "steady"
    assert rate.ratio == pytest.approx(1.4)
    assert not rate.held, "at most 0.7 of the peer's time is at least 1.43 times better"
    assert only(found, "W2 ms per token, int8 against 4-bit").ratio == pytest.approx(5 / 7)


def test_the_single_stream_in_bf16_is_compared_with_llama_cpp() -> None:
    entries = [
        entry("ours", BF16, "evenflow", w2=SingleStream(50.0, 10.0)),
        entry("other", BF16, w2=SingleStream(40.0, 5.0)),
        entry("llama", BF16, "llama.cpp", w2=SingleStream(60.0, 12.0)),
    ]
    found = ratios(entries)
    assert only(found, "W2 ms per token, bf16").rival == "llama"
    assert only(found, "W2 first token, bf16").rival == "other"


def latency(ttft_p95: float, itl_p99: float | None) -> Latency:
    return Latency(1.0, Tail(200, (1.0, ttft_p95, None)), Tail(9000, (1.0, 2.0, itl_p99)))


def test_tails_are_compared_at_each_rate() -> None:
    entries = [
        entry("ours", INT8, "evenflow", online={0.9: latency(100.0, 20.0), 0.6: latency(90.0, 10.0)}),
        entry("a", INT8, online={0.9: latency(180.0, 50.0), 0.6: latency(81.0, 30.0)}),
        entry("b", BF16, online={0.9: latency(300.0, 30.0)}),
    ]
    found = ratios(entries)
    ttft, itl = only(found, "W3 at 0.9, TTFT P95"), only(found, "W3 at 0.9, ITL P99")
    assert (ttft.rival, ttft.ratio, ttft.goal, ttft.held) == ("a", 1.8, 1.7, True)
    assert (itl.rival, itl.ratio, itl.goal, itl.held) == ("b", 1.5, 2.0, False)
    assert only(found, "W3 at 0.6, TTFT P95").ratio == pytest.approx(0.9)


def test_a_tail_that_the_sample_cannot_carry_is_not_compared() -> None:
    entries = [
        entry("ours", INT8, "evenflow", online={0.9: latency(100.0, 20.0)}),
        entry("a", INT8, online={0.9: latency(180.0, None)}),
    ]
    assert [ratio.what for ratio in ratios(entries)] == ["W3 at 0.9, TTFT P95"]


def test_the_share_of_the_products_is_of_evenflow_alone() -> None:
    entries = [
        entry("int8", INT8, "evenflow", w1=took(10.0, floor=7.0)),
        entry("bf16", BF16, "evenflow", w1=took(10.0, floor=7.0)),
    ]
    int8, bf16 = ratios(entries)
    assert (int8.own, int8.rival, int8.ratio, int8.held) == ("int8", None, 0.7, True)
    assert (bf16.ratio, bf16.goal, bf16.held) == (0.7, 0.75, False)


def test_without_peers_there_is_nothing_to_compare() -> None:
    assert ratios([entry("ours", INT8, "evenflow", w1=took(1.0), w2=SingleStream(1.0, 1.0))]) == []
