"""What other load generators have been reported for, one test each; the numbers are those of the list of reports.

    1  vllm#54101           waiting for a place under the cap is in no latency
    2  vllm PR 45502        places that free together cause a burst
    3  vllm#52884           the same seed twice meets a warm prefix cache
    4  vllm PR 42661        ITL per chunk, not per token
    5  guidellm#444         failed requests are in the latencies
    6  guidellm#216         a stream without a token has a TTFT
    7  guidellm#487         connections are capped in silence
    8  guidellm#526         seconds pass before the first send
    9  inference-perf#188   the client's loop is late, and its stamps with it
    10 inference-perf#245   a stage is over before its requests are sent
    11 llmperf#32           users wait for each other
    12 aiperf#339           answers have another length than asked for, and nobody says so
    13 sglang#23949         no token, or only reasoning, is taken for a first token
    15 vllm#23600           a failing benchmark ends the sweep, because text is parsed (test_load.py)

14 is of simulators.
"""

import asyncio
from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
import pytest

from evenflow.replay.load import LoadOptions, make_load
from evenflow.replay.measure import measure
from evenflow.replay.noop_server import Answer, Asked, NoopServer
from evenflow.replay.pacing import ClosedLoop, OpenLoop, Patience
from evenflow.replay.request import Reason
from evenflow.replay.run import new_seed
from evenflow.replay.target import Endpoint
from evenflow.replay.verdict import judge
from evenflow.workload.trace import Trace, TraceRequest
from load_world import PORT, Seen, load, plans
from virtual_loop import VirtualLoop


def slow(asked: Asked) -> Answer:
    return Answer(first_token_seconds=0.5)


def faults_of(seen: Seen) -> tuple[str, ...]:
    outcome = seen.outcome
    measured = measure(seen.records, None, None)
    return judge(seen.records, measured, outcome.loop_lags, outcome.gave_up, open_loop=True).faults


def cautions_of(seen: Seen) -> str:
    outcome = seen.outcome
    measured = measure(seen.records, None, None)
    return " / ".join(judge(seen.records, measured, outcome.loop_lags, outcome.gave_up, open_loop=True).cautions)


def test_1_the_wait_for_a_place_under_the_cap_is_part_of_the_latency() -> None:
    seen = load(plans(8, 0.1), slow, pacing=OpenLoop(most_in_flight=1))
    assert [record.ttft for record in seen.records] == pytest.approx(
        [0.5 + 0.4 * index for index in range(8)], abs=1e-4
    )
    assert [record.ttft_from_send for record in seen.records] == pytest.approx([0.5] * 8, abs=1e-4)


def test_2_places_that_free_together_cause_no_burst_above_the_rate() -> None:
    def all_at_the_full_second(asked: Asked) -> Answer:
        return Answer(first_token_seconds=1.0 - asked.received % 1.0)

    seen = load(plans(1500, 1 / 500), all_at_the_full_second, pacing=OpenLoop(most_in_flight=256))
    sent = [record.sent for record in seen.records if record.sent is not None]
    assert len(sent) == 1500
    assert max(record.allowed - record.intended for record in seen.records if record.allowed is not None) > 1.0
    assert min(b - a for a, b in pairwise(sent)) >= 1 / 500 - 1e-4


def test_3_no_run_meets_its_own_content_in_a_cache() -> None:
    server = NoopServer()
    for _ in range(2):
        load(plans(20, 0.1), seed=new_seed(), server=server)
    assert server.num_repeated_prompts == 0
    load(plans(20, 0.1), seed=5, server=server)
    load(plans(20, 0.1), seed=5, server=server)
    assert server.num_repeated_prompts == 20


@pytest.mark.parametrize("tokens_per_event", [1, 4])
def test_4_itl_is_per_token_however_many_an_event_holds(tokens_per_event: int) -> None:
    def script(asked: Asked) -> Answer:
        return Answer(first_token_seconds=0.1, gap_seconds=0.04 * tokens_per_event, tokens_per_event=tokens_per_event)

    (record,) = load(plans(1, 1.0, output=40), script).records
    gaps = record.token_gaps()
    assert len(gaps) == 39
    # n tokens have n - 1 gaps; those that came with the first have waited for nobody.
    assert np.count_nonzero(gaps) == 40 - tokens_per_event
    assert gaps[-1] == pytest.approx(0.04, abs=1e-4)
    assert gaps.sum() == pytest.approx(record.chunk_times[-1] - record.chunk_times[0])
    assert record.chunk_gaps() == pytest.approx([0.04 * tokens_per_event] * (40 // tokens_per_event - 1), abs=1e-4)


def test_5_failed_requests_are_in_no_latency_and_no_throughput() -> None:
    def every_tenth_fails(asked: Asked) -> Answer:
        return Answer(status=500) if asked.index % 10 == 3 else Answer(first_token_seconds=0.2, gap_seconds=0.1)

    seen = load(plans(100, 0.05), every_tenth_fails)
    measured = measure(seen.records, None, None)
    assert (measured.num_ok, measured.failed[0][:2]) == (90, ("HTTP status", 10))
    assert measured.failed[0][2].startswith("HTTP 500: ")
    ttft = measured.rows[0]
    assert ttft.tail.num_observations == 90
    assert ttft.mean == pytest.approx(0.2, abs=1e-4)
    window = measured.window
    good = [record for record in seen.records if record.ok]
    inside = sum(window.has(time) for record in good for time in record.chunk_times)
    assert measured.rates.output_tokens == pytest.approx(inside / window.seconds)
    assert "10 of 100 requests failed (10.0%)" in cautions_of(seen)


def test_6_a_stream_that_ends_without_a_token_has_no_time_to_it() -> None:
    seen = load(plans(5, 0.1), lambda asked: Answer(num_tokens=0))
    assert all(record.ttft is None and record.reason is Reason.NO_TOKENS for record in seen.records)
    measured = measure(seen.records, None, None)
    assert measured.rows[0].mean is None
    assert measured.rates.output_tokens == 0.0
    assert "no request succeeded: there is nothing to measure" in faults_of(seen)


def test_7_nothing_caps_the_number_of_connections() -> None:
    seen = load(plans(300, 0.0), slow)
    assert seen.server.most_connections == 300
    assert len(seen.good) == 300
    assert load(plans(300, 0.0), slow, pacing=ClosedLoop(128)).server.most_connections == 128


def test_8_the_first_request_is_sent_at_t0() -> None:
    seen = load(plans(3, 10.0))
    assert seen.records[0].sent == pytest.approx(0.0, abs=1e-3)
    assert seen.outcome.start < 0.1
    first, *others = seen.records
    late = [replace(first, sent=0.15), *others]
    verdict = judge(late, measure(late, None, None), (), None, open_loop=True)
    assert any("the first request was sent 150 ms after it was due" in fault for fault in verdict.faults)


def test_9_time_stamps_are_those_of_the_server() -> None:
    rng = Random(0)
    seen = load(
        plans(16 * 60, 1 / 16, output=12),
        lambda asked: Answer(first_token_seconds=rng.uniform(0.05, 0.4), gap_seconds=rng.uniform(0.01, 0.05)),
    )
    start = seen.outcome.start
    by_id = {record.request_id: record for record in seen.records}
    assert len(seen.good) == 960
    for asked in seen.server.asked:
        record = by_id[asked.request_id]
        assert record.chunk_times == pytest.approx([time - start for time in asked.token_times], abs=2e-6)
    assert faults_of(seen) == ()


def test_9_a_client_that_is_late_itself_says_so() -> None:
    def hog(loop: VirtualLoop) -> None:
        def compute() -> None:
            loop.pass_time(0.05)
            loop.call_later(0.2, compute)

        loop.call_later(0.2, compute)

    faults = faults_of(load(plans(160, 1 / 16), slow, meanwhile=hog))
    assert any("requests were sent late" in fault for fault in faults)
    assert any("answers were read late" in fault for fault in faults)


def test_10_a_stage_is_not_over_before_its_requests_are_sent() -> None:
    trace = Trace("t", "evenflow", tuple(TraceRequest(0.0, 8, 2) for _ in range(3000)), 3000, time_unit=None)
    stages = make_load(trace, LoadOptions(arrivals="staircase", stages="100x2,800x2"), None).plans
    assert 1500 < len(stages) < 2100
    seen = load(stages, slow)
    assert len(seen.server.asked) == len(stages) == len(seen.good)
    second = [record for record in seen.records if 2.0 <= record.intended < 4.0]
    assert len(second) == pytest.approx(1600, rel=0.1)
    assert max(record.sent - record.intended for record in second if record.sent is not None) < 1e-3


def test_10_what_was_never_sent_is_counted_and_makes_the_run_invalid() -> None:
    def leave(loop: VirtualLoop) -> None:
        loop.call_later(1.0, loop.shut, PORT)

    def close(asked: Asked) -> Answer:
        return Answer(status=503, first_token_seconds=60.0)  # keeps its connection, so that new ones are needed

    seen = load(plans(400, 0.02), close, meanwhile=leave, patience=Patience(connects_in_a_row=100))
    measured = measure(seen.records, None, None)
    assert measured.num_unsent > 200
    assert measured.num_planned == 400 == measured.num_ok + measured.num_unsent + sum(n for _, n, _ in measured.failed)
    faults = " / ".join(faults_of(seen))
    assert "the server is gone: 100 requests in a row got no connection" in faults
    assert f"{measured.num_unsent} of 400 requests were never sent" in faults


def test_11_users_do_not_wait_for_each_other() -> None:
    def one_is_long(asked: Asked) -> Answer:
        return Answer(first_token_seconds=30.0 if asked.index == 5 else 0.1)

    seen = load(plans(1280, 0.0), one_is_long, pacing=ClosedLoop(num_users=64))
    assert seen.server.most_connections == 64
    while_it_ran = [asked for asked in seen.server.asked if asked.received < 3.0]
    assert len(while_it_ran) == 1280


@pytest.mark.parametrize(("num_tokens", "output"), [(300, 1023), (8, 6)])
def test_12_answers_of_another_length_than_asked_for_are_a_caution(num_tokens: int, output: int) -> None:
    seen = load(plans(50, 0.01, output=output), lambda asked: Answer(num_tokens=num_tokens))
    said = f"50 of 50 answers have another length than asked for (median {num_tokens} tokens for {output})"
    assert said in cautions_of(seen)
    assert {record.num_output_tokens for record in seen.records} == {num_tokens}


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "content"])
def test_13_the_first_token_counts_whatever_it_is_called(field: str) -> None:
    def script(asked: Asked) -> Answer:
        return Answer(first_token_seconds=0.3, gap_seconds=0.1, field=field)

    seen = load(plans(3, 1.0), script, endpoint=Endpoint.CHAT)
    assert [record.ttft for record in seen.records] == pytest.approx([0.3] * 3, abs=1e-4)


def test_13_events_without_text_are_no_tokens() -> None:
    seen = load(plans(3, 1.0), lambda asked: Answer(first_token_seconds=0.3, field=""))
    assert {record.reason for record in seen.records} == {Reason.NO_TOKENS}
    assert "the server streamed no token (it counts 4), so there is no time to the first one" in seen.details()


def test_the_loop_of_these_tests_is_the_one_that_runs() -> None:
    """They would say nothing if time were real."""

    def check(loop: VirtualLoop) -> None:
        assert asyncio.get_running_loop() is loop

    seen = load(plans(2, 300.0), meanwhile=check)
    assert seen.outcome.end > 300.0
