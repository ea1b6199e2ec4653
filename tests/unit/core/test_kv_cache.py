"""Block tables and prefix hits, verb by verb. The random walk over all of them is property/test_kv_machine.py."""

from collections.abc import Sequence

import pytest

from evenflow.core.kv_cache import NO_HIT, KVCacheManager
from evenflow.core.request import Request, RequestId, RequestState, SamplingParams


def state(name: str, token_ids: Sequence[int], *, salt: str = "", prompt_logprobs: int | None = None) -> RequestState:
    sampling = SamplingParams(prompt_logprobs=prompt_logprobs)
    return RequestState(Request(RequestId(name), tuple(token_ids), sampling, 0.0, cache_salt=salt), key=(0,))


def run_and_leave(kv: KVCacheManager, token_ids: Sequence[int], *, computed: int | None = None, salt: str = "") -> None:
    """A request comes, computes and goes, so that what it published may be hit."""
    past = state("past", token_ids, salt=salt)
    assert kv.open(past, kv.lookup(past), upto=len(token_ids))
    past.num_computed_tokens = len(token_ids) if computed is None else computed
    kv.publish(past)
    kv.close(past.request.id)


def manager(num_blocks: int = 8, *, prefix_caching: bool = True) -> KVCacheManager:
    return KVCacheManager(num_blocks=num_blocks, block_size=2, prefix_caching=prefix_caching)


def test_a_partly_filled_block_counts_as_one() -> None:
    assert [manager().blocks_for(n) for n in (0, 1, 2, 3)] == [0, 1, 1, 2]


def test_the_hit_is_whole_blocks_and_leaves_one_token_to_compute() -> None:
    kv = manager()
    run_and_leave(kv, range(8))
    assert kv.lookup(state("a", range(8))).num_tokens == 6
    assert kv.lookup(state("a", range(9))).num_tokens == 8
    assert kv.lookup(state("a", range(3))).num_tokens == 2
    assert kv.lookup(state("a", range(2))) == NO_HIT


def test_a_different_beginning_makes_the_same_block_another() -> None:
    kv = manager()
    run_and_leave(kv, [1, 2, 3, 4, 5])
    assert kv.lookup(state("a", [9, 2, 3, 4, 5])) == NO_HIT
    assert kv.lookup(state("a", [3, 4, 5])) == NO_HIT


def test_a_hit_ends_at_the_first_block_that_is_gone() -> None:
    kv = manager(num_blocks=3)
    run_and_leave(kv, range(6))
    other = state("other", [7])
    assert kv.open(other, NO_HIT, upto=1)  # takes the tail, the first to go
    assert kv.lookup(state("a", range(7))).num_tokens == 4


def test_other_salts_do_not_share() -> None:
    kv = manager()
    run_and_leave(kv, range(5), salt="mine")
    assert kv.lookup(state("a", range(5))) == NO_HIT
    assert kv.lookup(state("a", range(5), salt="yours")) == NO_HIT
    assert kv.lookup(state("a", range(5), salt="mine")).num_tokens == 4


def test_only_computed_full_blocks_are_hit() -> None:
    kv = manager()
    run_and_leave(kv, range(8), computed=5)
    assert kv.lookup(state("a", range(8))).num_tokens == 4


def test_prompt_logprobs_need_every_position_to_run() -> None:
    kv = manager()
    run_and_leave(kv, range(8))
    assert kv.lookup(state("a", range(8), prompt_logprobs=0)) == NO_HIT


def test_without_prefix_caching_nothing_is_ever_hit() -> None:
    kv = manager(prefix_caching=False)
    run_and_leave(kv, range(8))
    assert kv.lookup(state("a", range(8))) == NO_HIT


def test_open_begins_with_the_hit_and_shares_it_with_its_holder() -> None:
    kv = manager()
    first, second = state("first", range(5)), state("second", range(7))
    assert kv.open(first, NO_HIT, upto=5)
    first.num_computed_tokens = 5
    kv.publish(first)
    assert kv.open(second, kv.lookup(second), upto=7)
    second.num_computed_tokens = 4
    assert kv.table(second.request.id).block_ids[:2] == kv.table(first.request.id).block_ids[:2]
    assert kv.table(second.request.id).capacity == 8
    assert kv.num_free_blocks == 8 - 5
    kv.check([first, second])


def test_open_takes_everything_or_nothing() -> None:
    kv = manager(num_blocks=2)
    big = state("big", range(5))
    assert not kv.open(big, NO_HIT, upto=5)
    assert kv.num_free_blocks == 2
    kv.check([])


def test_keep_free_is_left_after_opening() -> None:
    kv = manager(num_blocks=3)
    newcomer = state("a", range(4))
    assert not kv.open(newcomer, NO_HIT, upto=4, keep_free=2)
    assert kv.open(newcomer, NO_HIT, upto=4, keep_free=1)


def test_a_hit_on_free_blocks_uses_them_up() -> None:
    """Free blocks that the hit itself brings back to life cannot also be handed out."""
    kv = manager(num_blocks=3)
    run_and_leave(kv, range(4))
    newcomer = state("a", range(7))
    hit = kv.lookup(newcomer)
    assert hit.num_tokens == 4
    assert kv.num_free_blocks == 3
    assert not kv.could_open(hit, upto=7)
    assert kv.could_open(hit, upto=6)


def test_blocks_shared_with_somebody_who_stays_are_not_freed_by_who_goes() -> None:
    kv = manager(num_blocks=4)
    first, second = state("first", range(5)), state("second", range(5))
    assert kv.open(first, NO_HIT, upto=5)
    first.num_computed_tokens = 5
    kv.publish(first)
    assert kv.open(second, kv.lookup(second), upto=5)
    newcomer = state("new", [9, 9, 9, 9, 9])
    assert not kv.could_open(NO_HIT, upto=4, without=[second.request.id])
    assert kv.could_open(NO_HIT, upto=2, without=[second.request.id])
    assert kv.could_open(NO_HIT, upto=newcomer.num_tokens, without=[first.request.id, second.request.id])


def test_grow_takes_a_block_only_when_the_last_is_full() -> None:
    kv = manager(num_blocks=2)
    a = state("a", [1])
    assert kv.open(a, NO_HIT, upto=1)
    before = kv.table(a.request.id).block_ids
    assert kv.grow(a.request.id, upto=2)
    assert kv.table(a.request.id).block_ids is before
    assert kv.grow(a.request.id, upto=3)
    assert kv.table(a.request.id).capacity == 4
    assert not kv.grow(a.request.id, upto=5)
    assert kv.table(a.request.id).capacity == 4


def test_publishing_twice_is_publishing_once() -> None:
    kv = manager()
    a = state("a", range(4))
    assert kv.open(a, NO_HIT, upto=4)
    a.num_computed_tokens = 4
    kv.publish(a)
    kv.publish(a)
    assert kv.table(a.request.id).num_published == 2
    kv.check([a])


def test_check_finds_a_table_that_nobody_should_have() -> None:
    kv = manager()
    a = state("a", range(4))
    assert kv.open(a, NO_HIT, upto=4)
    kv.check([a])
    with pytest.raises(AssertionError):
        kv.check([])


def test_check_finds_more_computed_than_there_is_room_for() -> None:
    kv = manager()
    a = state("a", range(4))
    assert kv.open(a, NO_HIT, upto=2)
    a.num_computed_tokens = 3
    with pytest.raises(AssertionError):
        kv.check([a])


def test_an_identifier_cannot_be_opened_twice() -> None:
    kv = manager()
    a = state("a", range(2))
    assert kv.open(a, NO_HIT, upto=2)
    with pytest.raises(AssertionError):
        kv.open(a, NO_HIT, upto=2)


def test_what_another_request_holds_too_is_not_lost() -> None:
    kv = manager()
    first, second = state("first", range(7)), state("second", [*range(4), 9, 9, 9])
    for each in (first, second):
        assert kv.open(each, kv.lookup(each), upto=7)
        each.num_computed_tokens = 7
        kv.publish(each)
    loss = kv.loss(second)
    assert (loss.num_tokens, loss.num_blocks_in) == (3, 2)
    assert loss.attended_context_tokens == 5 + 6 + 7
