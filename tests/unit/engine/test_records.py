"""Whom a step fed, told with the same objects as long as it is the same."""

from itertools import pairwise

from evenflow.core.events import StepRecord
from evenflow.core.plan import Chunk
from evenflow.core.request import RequestId
from evenflow.engine.core import FedBefore
from simulated import Server, ask, simulate


def records() -> list[StepRecord]:
    load = [ask("a", 0.0, 20, 30), ask("b", 0.0, 20, 12), ask("c", 0.15, 40, 20)]
    return [event for event in simulate(Server(seats=3, budget=24), load) if isinstance(event, StepRecord)]


def test_records_of_a_batch_that_stays_share_their_tuples_and_others_do_not() -> None:
    same = [one.scheduled == two.scheduled for one, two in pairwise(records())]
    shared = [one.scheduled is two.scheduled for one, two in pairwise(records())]
    assert same == shared
    assert same.count(True) > 15
    assert same.count(False) >= 4, "somebody came, was fed in pieces, and left"
    for one, two in pairwise(records()):
        assert (one.emitted == two.emitted) is (one.emitted is two.emitted)


def test_a_record_says_whom_its_own_step_fed() -> None:
    for record in records():
        assert len(record.scheduled) == record.num_scheduled
        assert sum(num for _, num in record.scheduled) == record.prefill_tokens + record.decode_tokens
        assert {request_id for request_id, _ in record.scheduled} >= set(record.emitted)


def chunks_of(fed: dict[str, int]) -> tuple[Chunk, ...]:
    return tuple(Chunk(RequestId(name), 0, (7,) * num, (), True) for name, num in fed.items())


def test_a_step_that_only_decodes_is_told_from_one_that_gave_the_same_tokens_and_fed_others() -> None:
    """The same four get a token each time; what they were fed is not the same."""
    decodes = dict.fromkeys("abcd", 1)
    steps = [decodes, {**decodes, "d": 5}, decodes, decodes]
    before = FedBefore()
    told = [before.told(chunks_of(fed), map(RequestId, fed), only_decodes=fed is decodes) for fed in steps]
    assert [dict(scheduled) for scheduled, _ in told] == steps
    assert told[2][0] is told[3][0]
    assert len({id(emitted) for _, emitted in told}) == 1


def test_who_is_fed_and_gets_no_token_is_told() -> None:
    fed = FedBefore()
    chunks = chunks_of({"a": 1, "b": 1})
    fed.told(chunks, [RequestId("a"), RequestId("b")], only_decodes=True)
    assert fed.told(chunks, [RequestId("a")], only_decodes=False) == ((("a", 1), ("b", 1)), ("a",))
