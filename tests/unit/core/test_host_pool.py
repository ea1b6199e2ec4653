"""Host blocks: kept once, free when nobody waits for them, and not free in the step that reads them."""

import pytest

from evenflow.core.host_pool import HostPool
from evenflow.core.request import RequestId

A, B = RequestId("a"), RequestId("b")
X, Y, Z = b"x", b"y", b"z"


def test_a_stored_block_is_copied_and_taken() -> None:
    pool = HostPool(3)
    assert pool.store(A, [X, None]) == [(0, 0), (1, 1)]
    assert pool.table(A) == (0, 1)
    assert pool.num_free == 1
    pool.check({A})


def test_the_table_of_somebody_who_is_not_here_is_empty() -> None:
    assert HostPool(3).table(A) == ()


def test_store_takes_everything_or_nothing() -> None:
    pool = HostPool(2)
    assert pool.store(A, [X, Y, None]) is None
    assert pool.num_free == 2
    pool.check(set())


def test_a_pool_without_blocks_never_has_room() -> None:
    assert HostPool(0).store(A, [None]) is None


def test_what_two_have_in_common_is_kept_once() -> None:
    pool = HostPool(3)
    pool.store(A, [X, Y])
    assert pool.num_missing([X, None]) == 1
    assert pool.store(B, [X, None]) == [(1, 2)]
    assert pool.table(B) == (0, 2)
    pool.check({A, B})
    pool.discard(A)
    assert pool.num_free == 1
    pool.check({B})


def test_blocks_that_are_not_full_are_never_shared() -> None:
    pool = HostPool(2)
    pool.store(A, [None])
    assert pool.store(B, [None]) == [(0, 1)]


def test_a_restored_block_is_free_only_when_the_step_is_planned() -> None:
    pool = HostPool(1)
    pool.store(A, [X])
    pool.restore(A)
    assert pool.store(B, [Y]) is None
    pool.check(set())
    pool.settle()
    assert pool.store(B, [Y]) == [(0, 0)]


def test_what_was_restored_is_still_there_the_next_time() -> None:
    pool = HostPool(3)
    pool.store(A, [X, None])
    pool.restore(A)
    pool.settle()
    assert pool.store(A, [X, Y]) == [(1, 1)]  # the block nobody can find again goes first


def test_a_free_block_that_is_found_cannot_also_be_handed_out() -> None:
    pool = HostPool(2)
    pool.store(A, [X, Y])
    pool.discard(A)
    assert pool.store(B, [X, None, None]) is None
    assert pool.store(B, [X, None]) == [(1, 1)]
    pool.check({B})


def test_a_block_that_is_taken_for_something_else_is_no_longer_found() -> None:
    pool = HostPool(1)
    pool.store(A, [X])
    pool.discard(A)
    pool.store(B, [Z])
    pool.discard(B)
    assert pool.store(A, [X]) == [(0, 0)]


def test_check_finds_blocks_that_nobody_should_have() -> None:
    pool = HostPool(1)
    pool.store(A, [X])
    with pytest.raises(AssertionError):
        pool.check(set())
