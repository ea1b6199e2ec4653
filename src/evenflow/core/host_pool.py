"""Host memory for the KV cache of preempted requests: which host block keeps what, and for whom.

A host block is like a device block (block_pool.py): it has holders, a free one keeps its content until it is taken for
something else, and a full one is known by its hash. So what two swapped requests have in common is kept once, and a
request that is swapped out again copies only what it has computed since.

    store     a victim's blocks; those that the pool has already need no copy
    restore   the request runs again: its blocks are copied back in this step
    settle    the step is planned: restored blocks are free from the next step on

The time between `restore` and `settle` is the reason for both: a step makes all copies out before all copies in
(plan.py), so a block that is yet to be read must not be given to a later victim of the same step.
"""

from collections.abc import Sequence, Set

from evenflow.core.block_pool import BlockHash, BlockId, BlockPool
from evenflow.core.request import RequestId


class HostPool:
    """`num_blocks` 0 is a pool that never has room."""

    __slots__ = ("_pool", "_restored", "_tables")

    def __init__(self, num_blocks: int) -> None:
        self._pool = BlockPool(num_blocks)
        self._tables: dict[RequestId, tuple[BlockId, ...]] = {}
        self._restored: list[tuple[BlockId, ...]] = []

    @property
    def num_blocks(self) -> int:
        return self._pool.num_blocks

    @property
    def num_free(self) -> int:
        return self._pool.num_free

    def table(self, request_id: RequestId) -> tuple[BlockId, ...]:
        """Where the blocks of a swapped request are, in order; empty for anybody else."""
        return self._tables.get(request_id, ())

    def num_missing(self, contents: Sequence[BlockHash | None]) -> int:
        """How many of these blocks `store` would have to copy."""
        return sum(content is None or self._pool.find(content) is None for content in contents)

    def store(self, request_id: RequestId, contents: Sequence[BlockHash | None]) -> list[tuple[int, BlockId]] | None:
        """Keep a block for each of `contents` (None: one that nobody can share). Returns which of them to copy, by
        index, and where to; or None and no change if there is no room."""
        assert request_id not in self._tables
        known = [None if content is None else self._pool.find(content) for content in contents]
        found = [block_id for block_id in known if block_id is not None]
        num_revived = sum(map(self._pool.is_free, found))
        num_fresh = len(known) - len(found)
        if num_fresh > self._pool.num_free - num_revived:
            return None
        self._pool.share(found)
        fresh = iter(self._pool.take(num_fresh))
        table = [next(fresh) if block_id is None else block_id for block_id in known]
        copies = [(index, table[index]) for index, block_id in enumerate(known) if block_id is None]
        for index, block_id in copies:
            content = contents[index]
            if content is not None:
                self._pool.publish(block_id, content)
        self._tables[request_id] = tuple(table)
        return copies

    def restore(self, request_id: RequestId) -> None:
        """The request gives its blocks back, once this step is planned. Nothing to do for one that has none."""
        table = self._tables.pop(request_id, None)
        if table is not None:
            self._restored.append(table)

    def settle(self) -> None:
        for table in self._restored:
            self._pool.release(table)
        self._restored.clear()

    def discard(self, request_id: RequestId) -> None:
        """A waiting request will not run again; nothing to do for one that has no blocks here."""
        table = self._tables.pop(request_id, None)
        if table is not None:
            self._pool.release(table)

    def check(self, request_ids: Set[RequestId]) -> None:
        """Re-derive and compare everything; `request_ids` are the swapped requests. O(pool)."""
        assert self._tables.keys() == request_ids
        references = [0] * self._pool.num_blocks
        for table in (*self._tables.values(), *self._restored):
            assert len(set(table)) == len(table)
            for block_id in table:
                references[block_id] += 1
        self._pool.check(references)
