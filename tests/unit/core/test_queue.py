"""One flow of waiting requests: order, leaving from the middle, and its cost. The random walk is in property/."""

import gc
import tracemalloc

from evenflow.core.queue import FlowQueue
from evenflow.core.request import Request, RequestId, RequestState, SamplingParams


def state(name: str, *key: float) -> RequestState:
    return RequestState(Request(RequestId(name), (1,), SamplingParams(), 0.0), key=key)


def queue_of(*states: RequestState) -> FlowQueue:
    queue = FlowQueue()
    for each in states:
        queue.push(each)
    return queue


def come_and_go(queue: FlowQueue, each: RequestState) -> None:
    queue.push(each)
    queue.remove(each)


def num_states_in_memory() -> int:
    gc.collect()
    return sum(type(thing) is RequestState for thing in gc.get_objects())


def test_the_smallest_key_is_the_head() -> None:
    queue = queue_of(*(state(f"r{urgency}", urgency, number) for number, urgency in enumerate([3, 1, 2])))
    heads = []
    while queue:
        head = queue.head()
        heads.append(head.request.id)
        queue.remove(head)
    assert heads == ["r1", "r2", "r3"]


def test_followers_are_those_behind_the_head_in_order() -> None:
    queue = queue_of(*(state(f"r{number * 7 % 20}", number * 7 % 20) for number in range(20)))
    assert [each.request.id for each in queue.followers(4)] == ["r1", "r2", "r3", "r4"]
    assert len(queue.followers(100)) == 19
    assert queue.followers(0) == []


def test_the_dead_follow_nobody_and_who_came_back_follows_once() -> None:
    states = [state(f"r{number}", number) for number in range(6)]
    queue = queue_of(*states)
    queue.remove(states[2])
    queue.remove(states[4])
    queue.push(states[4])
    assert [each.request.id for each in queue.followers(9)] == ["r1", "r3", "r4", "r5"]


def test_who_leaves_from_the_middle_never_becomes_the_head() -> None:
    states = [state(f"r{i}", i) for i in range(4)]
    queue = queue_of(*states)
    for index in (1, 2, 0):
        queue.remove(states[index])
    assert queue.head() is states[3]


def test_a_reused_id_does_not_revive_the_dead_entry() -> None:
    first, gone, again = state("first", 0), state("x", 1), state("x", 9)
    queue = queue_of(first, gone)
    queue.remove(gone)
    queue.push(again)
    queue.remove(first)
    assert queue.head() is again
    assert list(queue) == [again]


def test_the_aborted_are_forgotten_though_the_head_stays() -> None:
    """A flood of requests that all abort behind one that waits must not stay in memory."""
    queue = queue_of(state("head", 0))
    kept_before = num_states_in_memory()
    for number in range(1, 2001):
        come_and_go(queue, state(f"r{number}", number))
    assert num_states_in_memory() - kept_before < 20
    assert len(queue) == 1


class _Counted(float):
    comparisons = 0

    def __lt__(self, other: float) -> bool:
        _Counted.comparisons += 1
        return float(self) < float(other)

    def __eq__(self, other: object) -> bool:
        return float(self) == other

    __hash__ = float.__hash__


def test_each_operation_costs_the_logarithm_of_the_number_waiting() -> None:
    count = 4096
    queue = queue_of(*(state(f"r{number}", _Counted(number * 7919 % count)) for number in range(count)))
    before = _Counted.comparisons
    for _ in range(count // 2):
        queue.remove(queue.head())
    assert _Counted.comparisons - before < (count // 2) * 3 * 12  # 12 is log2 of count
    before = _Counted.comparisons
    queue.followers(8)
    assert _Counted.comparisons - before < 100


def test_a_burst_leaves_no_table_behind() -> None:
    """A dict that has been large stays as large when it is empty: 100 KB after 4,000 that waited."""
    burst = [state(f"s{number}", float(number)) for number in range(4000)]
    queue = FlowQueue()
    gc.collect()  # dead tuples that the interpreter keeps for reuse would be taken uncounted
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for each in burst:
            queue.push(each)
        full, _ = tracemalloc.get_traced_memory()
        for each in burst:
            queue.remove(each)
        gc.collect()  # nor are those that it keeps now the queue's
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert full - before > 300_000, "there was something to leave behind"
    assert after - before < 20_000
    queue.push(burst[0])
    assert queue.head() is burst[0]
