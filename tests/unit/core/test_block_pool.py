"""Blocks: who is used, who is free, and whose content is given up first."""

import pytest

from evenflow.core.block_pool import BlockId, BlockPool


def blocks(*ids: int) -> list[BlockId]:
    return [BlockId(i) for i in ids]


def test_a_fresh_pool_hands_out_its_blocks_in_order() -> None:
    pool = BlockPool(3)
    assert pool.take(2) == [0, 1]
    assert pool.num_free == 1
    assert not pool.is_free(BlockId(1))
    assert pool.is_free(BlockId(2))


def test_a_block_without_content_is_reused_before_any_that_has_some() -> None:
    pool = BlockPool(3)
    cached, plain = pool.take(2)
    pool.publish(cached, b"x")
    pool.release([cached])
    pool.release([plain])
    assert pool.take(3) == [plain, 2, cached]


def test_the_longest_unused_content_is_given_up_first() -> None:
    pool = BlockPool(3)
    for block_id, content in zip(pool.take(3), (b"x", b"y", b"z"), strict=True):
        pool.publish(block_id, content)
    for block_id in blocks(1, 0, 2):
        pool.release([block_id])
    assert pool.take(2) == [1, 0]
    assert pool.find(b"z") == 2


def test_the_tail_of_a_table_is_given_up_before_its_head() -> None:
    pool = BlockPool(3)
    table = pool.take(3)
    for block_id, content in zip(table, (b"x", b"y", b"z"), strict=True):
        pool.publish(block_id, content)
    pool.release(table)
    assert pool.take(2) == [2, 1]
    assert pool.find(b"x") == 0


def test_a_free_block_keeps_its_content_until_it_is_taken() -> None:
    pool = BlockPool(1)
    pool.publish(pool.take(1)[0], b"x")
    pool.release(blocks(0))
    assert pool.find(b"x") == 0
    pool.take(1)
    assert pool.find(b"x") is None
    assert pool.content(BlockId(0)) is None


def test_a_block_that_was_hit_has_its_new_place_among_the_free_and_leaves_no_trace_of_the_old() -> None:
    pool = BlockPool(3)
    for block_id, content in zip(pool.take(3), (b"x", b"y", b"z"), strict=True):
        pool.publish(block_id, content)
    pool.release(blocks(2, 1, 0))  # 0 first
    for _ in range(200):
        pool.share(blocks(0))
        pool.release(blocks(0))
    pool.check([0, 0, 0])
    assert pool.layout()[0] == (1, 2, 0)
    pool.share(blocks(0))
    assert pool.take(2) == [1, 2]
    assert pool.num_free == 0
    pool.release(blocks(0, 1))
    assert pool.take(2) == [1, 0]
    pool.check([1, 1, 1])


def test_a_shared_block_is_free_again_only_after_its_last_release() -> None:
    pool = BlockPool(2)
    (block_id,) = pool.take(1)
    pool.share([block_id])
    assert pool.references(block_id) == 2
    pool.release([block_id])
    assert pool.num_free == 1
    pool.release([block_id])
    assert pool.num_free == 2


def test_sharing_a_free_block_takes_it_off_the_free_list_with_its_content() -> None:
    pool = BlockPool(1)
    pool.publish(pool.take(1)[0], b"x")
    pool.release(blocks(0))
    pool.share(blocks(0))
    assert pool.num_free == 0
    assert pool.find(b"x") == 0


def test_of_two_blocks_with_one_content_the_first_stays_the_cached_copy() -> None:
    pool = BlockPool(2)
    first, second = pool.take(2)
    pool.publish(first, b"x")
    pool.publish(second, b"x")
    assert pool.find(b"x") == first
    assert pool.content(second) is None


def test_a_block_cannot_be_given_a_second_content() -> None:
    pool = BlockPool(1)
    pool.publish(pool.take(1)[0], b"x")
    with pytest.raises(AssertionError):
        pool.publish(BlockId(0), b"y")


def test_check_finds_a_reference_that_no_table_holds() -> None:
    pool = BlockPool(2)
    pool.take(1)
    pool.check([1, 0])
    with pytest.raises(AssertionError):
        pool.check([0, 0])
