"""Whose turn it is: the virtual token counter by itself. Runs under it are in timeline/ and property/."""

import gc
from dataclasses import replace

import pytest

from evenflow.core.plan import Chunk
from evenflow.core.policy.bound import Limits
from evenflow.core.policy.fairness import Lane, OneFlow
from evenflow.core.policy.vtc import VirtualTokenCounter, tokens_of_one_batch
from evenflow.core.request import Place, Request, RequestId, RequestState, SamplingParams

LANE = Place("default", "default", "default", is_long=False)


class Queue:
    """Requests of tenants, waiting in one lane."""

    def __init__(self, piece: VirtualTokenCounter | None = None) -> None:
        self.piece = VirtualTokenCounter(1.0, 2.0, ()) if piece is None else piece
        self.lane: Lane = self.piece.lane(0)
        self.count = 0

    def arrive(self, *tenants: str) -> None:
        for tenant in tenants:
            self.count += 1
            request = Request(RequestId(f"{tenant}{self.count}"), (1,), SamplingParams(), 0.0, tenant=tenant)
            self.lane.push(RequestState(request, key=(0, float(self.count), self.count), place=LANE))

    def admit(self, *, prompt: int = 10) -> str:
        """The head comes in; its tenant."""
        state = self.lane.head()
        self.lane.remove(state)
        self.piece.admitted(state, prompt)
        self.running = state
        return state.request.tenant

    def produce(self, count: int) -> None:
        """Output tokens of the request that came in last."""
        for _ in range(count):
            self.piece.served([Chunk(self.running.request.id, 9, (7,), (), samples=True)])


def test_one_flow_holds_everybody() -> None:
    requests = [Request(RequestId(t), (1,), SamplingParams(), 0.0, tenant=t) for t in ("x", "y")]
    assert {OneFlow().flow_of("default", request) for request in requests} == {"default"}
    assert OneFlow().lane(0).num_flows == 1


def test_the_tenant_with_the_least_service_is_next() -> None:
    queue = Queue()
    queue.arrive("a", "a", "a", "b", "b", "b")
    assert [queue.admit() for _ in range(6)] == ["a", "b", "a", "b", "a", "b"]


def test_a_longer_prompt_counts_for_as_many_short_ones() -> None:
    queue = Queue()
    queue.arrive("a", "a", "b", "b", "b", "b")
    assert queue.admit(prompt=30) == "a"
    assert [queue.admit(prompt=10) for _ in range(4)] == ["b", "b", "b", "a"]


def test_an_output_token_counts_as_its_weight_in_prompt_tokens() -> None:
    queue = Queue()
    queue.arrive("a", "a", "b", "b", "b")
    queue.admit()
    queue.produce(6)  # a has 10 + 2 * 6 now
    assert [queue.admit() for _ in range(4)] == ["b", "b", "b", "a"]


def test_a_tenant_of_twice_the_weight_gets_twice_the_service() -> None:
    queue = Queue(VirtualTokenCounter(1.0, 2.0, [("big", 2.0)]))
    queue.arrive(*["big"] * 8, *["small"] * 8)
    served = [queue.admit() for _ in range(9)]
    assert served.count("big") == 6


def test_absence_earns_no_credit() -> None:
    queue = Queue()
    queue.arrive("a", "a", "a", "a", "b")
    assert queue.admit() == "a"
    assert queue.admit() == "b"
    for _ in range(2):
        queue.admit()
    queue.arrive("b", "b", "b")  # b waited for nothing while a was served
    assert [queue.admit() for _ in range(3)] == ["a", "b", "b"]


def test_who_comes_to_an_empty_queue_is_lifted_to_who_waited_last() -> None:
    queue = Queue()
    queue.arrive("a")
    queue.admit(prompt=100)
    queue.arrive("b", "b", "a", "a")
    assert [queue.admit() for _ in range(4)] == ["b", "a", "b", "a"]


def test_within_a_tenant_the_order_piece_rules_and_followers_are_its_own() -> None:
    queue = Queue()
    queue.arrive("a", "b", "a", "a", "b")
    assert [state.request.id for state in queue.lane.followers(9)] == ["a3", "a4"]
    assert queue.lane.num_flows == 2
    assert len(queue.lane) == len(list(queue.lane)) == 5


def test_a_tenant_that_left_and_came_back_has_one_turn_and_not_two() -> None:
    queue = Queue()
    queue.arrive("a", "b", "b")
    gone = queue.lane.head()
    queue.lane.remove(gone)
    queue.lane.push(gone)
    assert sorted(queue.admit() for _ in range(3)) == ["a", "b", "b"]
    assert len(queue.lane) == 0


class Named(str):
    """A name that can be counted in memory."""


def num_names_in_memory() -> int:
    gc.collect()
    return sum(type(thing) is Named for thing in gc.get_objects())


def test_tenants_without_requests_are_forgotten_but_for_what_they_owe() -> None:
    """A stranger may send each request as another tenant."""
    queue = Queue()
    queue.arrive("debtor", "waits")
    assert queue.admit(prompt=1_000_000) == "debtor"
    queue.piece.ended(queue.running.request.id)
    before = num_names_in_memory()
    for number in range(5000):
        queue.arrive(Named(f"t{number}"))
        (newest,) = (state for state in queue.lane if state.request.tenant != "waits")
        queue.lane.remove(newest)
    assert num_names_in_memory() - before < 1200
    queue.arrive("debtor", "new")
    assert [queue.admit() for _ in range(3)] == ["waits", "new", "debtor"]


def test_lanes_of_one_rank_share_the_counters_of_their_tenants() -> None:
    piece = VirtualTokenCounter(1.0, 2.0, ())
    short, long = Queue(piece), Queue(piece)
    short.arrive("a", "b")
    long.arrive("a")
    assert short.admit(prompt=50) == "a"
    assert short.lane.standing() < long.lane.standing()


def test_a_new_counter_goes_on_where_the_old_one_was() -> None:
    old = Queue()
    old.arrive("a", "b")
    old.admit(prompt=70)
    new = Queue()
    new.arrive("a", "b")
    new.piece.take_over(old.piece, [])
    assert new.admit() == "b"
    fresh = Queue()
    fresh.arrive("a", "b")
    fresh.piece.take_over(OneFlow(), [])
    assert fresh.admit() == "a"


def test_a_request_that_was_let_in_under_another_policy_is_charged_from_now_on() -> None:
    queue = Queue()
    request = Request(RequestId("old"), (1,), SamplingParams(), 0.0, tenant="a")
    queue.running = RequestState(request, key=(0, 0.0, 0), place=LANE)
    queue.arrive("a", "b")
    queue.piece.take_over(OneFlow(), [queue.running])
    queue.produce(5)
    assert queue.admit() == "b"


LIMITS = Limits(max_num_seqs=4, max_num_batched_tokens=64, max_model_len=100, num_blocks=24, block_size=4)


def test_the_gap_is_what_one_batch_can_still_make() -> None:
    assert tokens_of_one_batch(LIMITS) == pytest.approx(100 * (1 + 1 / 2 + 1 / 3 + 1 / 4))
    assert tokens_of_one_batch(replace(LIMITS, max_model_len=10)) == 40
    (bound,) = VirtualTokenCounter(1.0, 2.0, [("t", 0.5)]).bounds(replace(LIMITS, max_model_len=10))
    assert bound.value == 2 * 2.0 * 40 / 0.5
    (bound,) = OneFlow().bounds(LIMITS)
    assert bound.value is None
