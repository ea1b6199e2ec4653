"""Physical KV blocks: reference counts, the free list, and which block holds which content.

A block is *used* while some request's table refers to it, else *free*. A free block keeps its content, and its hash,
until it is taken for something else, so the prefix cache is simply what the free list has not yet handed out.

    free list, oldest first:   [ no content | oldest content ... newest content ]
                                 ^ taken first                      ^ given back here

Blocks without a hash can never be hit again, so they go to the front and spare the cached ones.

A free block that is hit leaves from the middle of the list. Its entry stays, dead, until it comes up, or until the dead
outnumber the living: so the list is a deque, which gives and takes a block in a third of the time that an ordered
dictionary needs. The dead entries of a block are all before its living one: it is given back at the back as long as it
has content, and loses its content only by being taken, when whatever was before it is gone.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NewType, cast

BlockId = NewType("BlockId", int)
BlockHash = bytes | int
"""A name of content (content.py)."""

_FEW = 64
"""Dead entries that are not worth a new list."""


class BlockPool:
    __slots__ = ("_block_of", "_dead", "_free", "_hash_of", "_references", "num_blocks", "num_free")

    def __init__(self, num_blocks: int) -> None:
        assert num_blocks >= 0
        self.num_blocks = num_blocks
        self.num_free = num_blocks
        self._references = [0] * num_blocks
        self._hash_of: list[BlockHash | None] = [None] * num_blocks
        self._block_of: dict[BlockHash, BlockId] = {}
        self._free: deque[BlockId] = deque(cast("Sequence[BlockId]", range(num_blocks)))
        self._dead: dict[BlockId, int] = {}  # how many entries of the free list

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
        taken: list[BlockId] = []
        while len(taken) < count:
            taken += [free.popleft() for _ in range(count - len(taken))]
            if self._dead:
                taken = self._living(taken, self._dead)
        self.num_free -= count
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
                self._dead[block_id] = self._dead.get(block_id, 0) + 1
                self.num_free -= 1
            self._references[block_id] += 1
        if len(self._free) > 2 * self.num_free + _FEW:
            self._free = deque(self._living(self._free, self._dead))

    def release(self, block_ids: Sequence[BlockId]) -> None:
        """One reference less to each. Tails first, so that a cached prefix outlives its suffixes."""
        free, hash_of, references = self._free, self._hash_of, self._references
        num_before = len(free)
        for block_id in reversed(block_ids):
            left = references[block_id] = references[block_id] - 1
            if not left:
                if hash_of[block_id] is None:
                    free.appendleft(block_id)
                else:
                    free.append(block_id)
        self.num_free += len(free) - num_before

    @staticmethod
    def _living(entries: Iterable[BlockId], dead: dict[BlockId, int]) -> list[BlockId]:
        """The entries, which come first in the free list, without the dead; and these are no longer counted."""
        living = []
        for block_id in entries:
            if num_dead := dead.pop(block_id, 0):
                if num_dead > 1:
                    dead[block_id] = num_dead - 1
            else:
                living.append(block_id)
        return living

    def publish(self, block_id: BlockId, block_hash: BlockHash) -> None:
        """Say what a used block holds. If another block already holds the same, that one stays the cached copy."""
        if block_hash not in self._block_of:
            assert self._hash_of[block_id] is None
            self._block_of[block_hash] = block_id
            self._hash_of[block_id] = block_hash

    def layout(self) -> tuple[tuple[BlockId, ...], tuple[BlockHash | None, ...]]:
        """The free blocks, first taken first, and what each block holds."""
        return tuple(self._living(self._free, dict(self._dead))), tuple(self._hash_of)

    def check(self, expected_references: Sequence[int]) -> None:
        """Re-derive everything from the tables' references and compare."""
        assert list(expected_references) == self._references
        living = self._living(self._free, dict(self._dead))
        assert sorted(living) == [b for b, n in enumerate(self._references) if n == 0]
        assert len(living) == self.num_free
        num_dead = sum(self._dead.values())
        assert len(self._free) == len(living) + num_dead
        assert num_dead <= self.num_blocks + _FEW
        assert {h: b for b, h in enumerate(self._hash_of) if h is not None} == self._block_of
