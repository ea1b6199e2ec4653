"""Two thousand requests of all lengths through a memory that is too small for them, a tenth of them aborted.

Here times are floating point and as odd as in life; tests/property/test_folds.py has exact ones.
"""

from collections import Counter
from functools import cache
from random import Random

from evenflow.core.events import Event
from evenflow.core.request import FinishReason
from evenflow.observe.fold import spans_of
from evenflow.observe.spans import RequestSpan
from evenflow.observe.story import StoryTeller
from evenflow.observe.waits import UNEXPLAINED
from simulated import Server, abort, ask, simulate

REQUESTS = 2_000
MICROSECOND = 1e-6


@cache
def run() -> tuple[Event, ...]:
    rng = Random(5)
    load, time = [], 0.0
    for number in range(REQUESTS):
        time += rng.expovariate(40.0)
        prompt, output = min(900, int(rng.lognormvariate(4.2, 1.0)) + 1), int(rng.expovariate(1 / 40)) + 1
        load.append(ask(f"r{number}", time, prompt, output, rng=rng, received=time - rng.random() * 0.01))
        if number % 10 == 0:
            load.append(abort(f"r{number}", time + rng.expovariate(0.3)))
    return tuple(simulate(Server(seats=32, budget=128, blocks=150), load))


@cache
def spans() -> tuple[RequestSpan, ...]:
    return tuple(spans_of(run()))


def test_the_run_has_preemptions_aborts_and_waits() -> None:
    assert len(spans()) == REQUESTS
    assert sum(span.num_preemptions > 0 for span in spans()) > 50
    assert sum(bool(span.ttft_parts and span.ttft_parts.preempted > 0.0) for span in spans()) > 5
    reasons = Counter(span.finish_reason for span in spans())
    assert reasons[FinishReason.ABORT] > 50
    assert sum(1 for span in spans() if span.first_token_time is None) > 5
    waited = {reason for span in spans() for reason in span.queue_by_reason}
    assert {"budget", "kv", "preemption"} <= waited


def test_the_parts_of_every_time_to_first_token_sum_to_it_within_a_microsecond() -> None:
    for span in spans():
        if span.first_token_time is None:
            assert span.ttft_parts is None
            continue
        assert span.ttft_parts is not None
        assert span.ttft_seconds is not None
        assert abs(span.ttft_parts.total - span.ttft_seconds) < MICROSECOND, span.request_id


def test_every_second_of_waiting_has_a_reason() -> None:
    for span in spans():
        assert span.queue_seconds is not None
        assert abs(sum(span.queue_by_reason.values()) - span.queue_seconds) < MICROSECOND, span.request_id
        back_in_queue = sum(end - start for start, end in span.preempted_times)
        assert abs(sum(span.preempted_by_reason.values()) - back_in_queue) < MICROSECOND, span.request_id
        assert UNEXPLAINED not in span.queue_by_reason
        assert UNEXPLAINED not in span.preempted_by_reason


def test_the_story_of_a_request_accounts_for_its_whole_life() -> None:
    told = [span for span in spans() if span.num_preemptions or span.finish_reason is FinishReason.ABORT][::40]
    assert len(told) > 5
    for span in told:
        teller = StoryTeller(span.request_id)
        teller.feed(run())
        assert teller.story is not None
        assert span.e2e_seconds is not None
        assert abs(sum(teller.story.seconds_by_kind().values()) - span.e2e_seconds) < MICROSECOND
        assert UNEXPLAINED not in teller.story.wait_by_reason()
