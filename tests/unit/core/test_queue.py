"""The waiting queue: order, flows, leaving from the middle, and its cost. The random walk is in property/."""

import gc

from evenflow.core.policy import FlowId
from evenflow.core.queue import WaitingQueue
from evenflow.core.request import Request, RequestId, RequestState, SamplingParams

ONE, TWO = FlowId("one"), FlowId("two")


def state(name: str, *key: float) -> RequestState:
    return RequestState(Request(RequestId(name), (1,), SamplingParams(), 0.0), key=key)


def come_and_go(queue: WaitingQueue, each: RequestState) -> None:
    queue.push(ONE, each)
    queue.remove(ONE, each)


def num_states_in_memory() -> int:
    gc.collect()
    return sum(type(thing) is RequestState for thing in gc.get_objects())


def test_the_smallest_key_is_the_head() -> None:
    queue = WaitingQueue()
    for number, urgency in enumerate([3, 1, 2]):
        queue.push(ONE, state(f"r{urgency}", urgency, number))
    heads = []
    while head := queue.head(ONE):
        heads.append(head.request.id)
        queue.remove(ONE, head)
    assert heads == ["r1", "r2", "r3"]
    assert len(queue) == 0


def test_flows_have_their_own_heads_and_are_named_in_order_of_first_use() -> None:
    queue = WaitingQueue()
    b, a = state("b", 2), state("a", 1)
    queue.push(TWO, b)
    queue.push(ONE, a)
    assert queue.flows() == (TWO, ONE)
    assert queue.head(TWO) is b
    assert queue.head(ONE) is a
    queue.remove(TWO, b)
    assert queue.flows() == (ONE,)
    assert queue.head(TWO) is None
    assert list(queue) == [a]


def test_who_leaves_from_the_middle_never_becomes_the_head() -> None:
    queue = WaitingQueue()
    states = [state(f"r{i}", i) for i in range(4)]
    for each in states:
        queue.push(ONE, each)
    queue.remove(ONE, states[1])
    queue.remove(ONE, states[2])
    queue.remove(ONE, states[0])
    assert queue.head(ONE) is states[3]


def test_a_reused_id_does_not_revive_the_dead_entry() -> None:
    queue = WaitingQueue()
    first, gone, again = state("first", 0), state("x", 1), state("x", 9)
    queue.push(ONE, first)
    queue.push(ONE, gone)
    queue.remove(ONE, gone)
    queue.push(ONE, again)
    queue.remove(ONE, first)
    assert queue.head(ONE) is again


def test_the_aborted_are_forgotten_though_the_head_stays() -> None:
    """A flood of requests that all abort behind one that waits must not stay in memory."""
    queue = WaitingQueue()
    queue.push(ONE, state("head", 0))
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
    queue = WaitingQueue()
    count = 4096
    for number in range(count):
        queue.push(ONE, state(f"r{number}", _Counted(number * 7919 % count)))
    before = _Counted.comparisons
    for _ in range(count // 2):
        head = queue.head(ONE)
        assert head is not None
        queue.remove(ONE, head)
    assert _Counted.comparisons - before < (count // 2) * 3 * 12  # 12 is log2 of count
