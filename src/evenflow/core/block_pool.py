"""Physical KV blocks: reference counts, the free list, and which block holds which content.

A block is *used* while some request's table refers to it, else *free*. A free block keeps its content, and its hash,
until it is taken for something else, so the prefix cache is simply what the free list has not yet handed out.

    free list, oldest first:   [ no content | oldest content ... newest content ]
                                 ^ taken first                      ^ given back here

Blocks without a hash can never be hit again, so they go to the front and spare the cached ones.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NewType, cast

BlockId = NewType("BlockId", int)
BlockHash = bytes | int
"""A name of content (content.py)."""


class BlockPool:
    __slots__ = ("_block_of", "_free", "_hash_of", "_references", "num_blocks")

    def __init__(self, num_blocks: int) -> None:
        assert num_blocks >= 0
        self.num_blocks = num_blocks
        self._references = [0] * num_blocks
        self._hash_of: list[BlockHash | None] = [None] * num_blocks
        self._block_of: dict[BlockHash, BlockId] = {}
        self._free: OrderedDict[BlockId, None] = OrderedDict.fromkeys(cast("Sequence[BlockId]", range(num_blocks)))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def is_free(self, block_id: BlockId) -> bool:
        return self._references[block_id] == 0

    def references(self, block_id: BlockId) -> int:
        return self._references[block_id]

    def find(self, block_hash: BlockHash) -> BlockId | None:
        """The block with this content, used or free."""
        return self._block_of.get(block_hash)

    def content(self, block_id: BlockId) -> BlockHash | None:
        return self._hash_of[block_id]

    def take(self, count: int) -> list[BlockId]:
        """`count` blocks of unspecified content, oldest free first. The caller has checked `num_free`."""
        free, hash_of, references = self._free, self._hash_of, self._references
        taken = [free.popitem(last=False)[0] for _ in range(count)]
        for block_id in taken:
            if (block_hash := hash_of[block_id]) is not None:
                del self._block_of[block_hash]
                hash_of[block_id] = None
            references[block_id] = 1
        return taken

    def share(self, block_ids: Sequence[BlockId]) -> None:
        """One more reference to each; a free block leaves the free list with its content."""
        for block_id in block_ids:
            if self._references[block_id] == 0:
                del self._free[block_id]
            self._references[block_id] += 1

    def release(self, block_ids: Sequence[BlockId]) -> None:
        """One reference less to each. Tails first, so that a cached prefix outlives its suffixes."""
        free, hash_of, references = self._free, self._hash_of, self._references
        for block_id in reversed(block_ids):
            left = references[block_id] = references[block_id] - 1
            if not left:
                free[block_id] = None
                if hash_of[block_id] is None:
                    free.move_to_end(block_id, last=False)

    def publish(self, block_id: BlockId, block_hash: BlockHash) -> None:
        """Say what a used block holds. If another block already holds the same, that one stays the cached copy."""
        if block_hash not in self._block_of:
            assert self._hash_of[block_id] is None
            self._block_of[block_hash] = block_id
            self._hash_of[block_id] = block_hash

    def layout(self) -> tuple[tuple[BlockId, ...], tuple[BlockHash | None, ...]]:
        """The free blocks, first taken first, and what each block holds."""
        return tuple(self._free), tuple(self._hash_of)

    def check(self, expected_references: Sequence[int]) -> None:
        """Re-derive everything from the tables' references and compare."""
        assert list(expected_references) == self._references
        assert {b for b, n in enumerate(self._references) if n == 0} == set(self._free)
        assert {h: b for b, h in enumerate(self._hash_of) if h is not None} == self._block_of
