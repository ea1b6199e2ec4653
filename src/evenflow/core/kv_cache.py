"""Paged KV bookkeeping: each request's block table, and prefix caching by chained block hashes.

Every verb is all-or-nothing and speaks block ids only; the memory itself is the executor's. The hash of a full block is
taken over the hash of the block before it and its own tokens, starting from the request's `cache_salt`, so equal hashes
mean equal whole prefixes (the scheme of vLLM's prefix cache, with SHA-256 because prompts are hostile input):

    h0 = H(salt)    h1 = H(h0, tokens[0:B])    h2 = H(h1, tokens[B:2B])    ...

Only what the model has really computed is published, after the step that computed it.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from evenflow.core.block_pool import BlockHash, BlockId, BlockPool
from evenflow.core.request import RequestId, RequestState


class PrefixHit(NamedTuple):
    """Cached blocks that hold the first `num_tokens` tokens of a request. Valid until the next verb of the manager."""

    block_ids: tuple[BlockId, ...]
    num_tokens: int


NO_HIT = PrefixHit((), 0)


@dataclass(slots=True, eq=False)
class BlockTable:
    """`capacity` is in tokens; `num_published` counts leading blocks whose content has been announced."""

    block_ids: tuple[BlockId, ...]
    capacity: int
    num_published: int = field(default=0)


class KVCacheManager:
    __slots__ = ("_pool", "_tables", "block_size", "prefix_caching")

    def __init__(self, *, num_blocks: int, block_size: int, prefix_caching: bool = True) -> None:
        assert block_size > 0
        self.block_size = block_size
        self.prefix_caching = prefix_caching
        self._pool = BlockPool(num_blocks)
        self._tables: dict[RequestId, BlockTable] = {}

    @property
    def num_blocks(self) -> int:
        return self._pool.num_blocks

    @property
    def num_free_blocks(self) -> int:
        return self._pool.num_free

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def table(self, request_id: RequestId) -> BlockTable:
        """The live table; the scheduler reads `capacity` and `block_ids` from it each step."""
        return self._tables[request_id]

    def lookup(self, state: RequestState) -> PrefixHit:
        """The longest cached prefix in whole blocks that still leaves one token to compute."""
        if not self.prefix_caching or state.request.sampling.prompt_logprobs is not None:
            return NO_HIT  # prompt log-probabilities need every prompt position to run
        found: list[BlockId] = []
        for index in range((state.num_tokens - 1) // self.block_size):
            block_id = self._pool.find(self._block_hash(state, index))
            if block_id is None:
                break
            found.append(block_id)
        return PrefixHit(tuple(found), len(found) * self.block_size)

    def could_open(self, hit: PrefixHit, *, upto: int, keep_free: int = 0, without: Iterable[RequestId] = ()) -> bool:
        """Whether `open` would succeed, had the requests of `without` closed first."""
        released = Counter(b for request_id in without for b in self._tables[request_id].block_ids)
        freed = {b for b, count in released.items() if self._pool.references(b) == count}
        needed = self.blocks_for(upto) - len(hit.block_ids)
        hit_free = sum(1 for b in hit.block_ids if self._pool.is_free(b) or b in freed)
        return self._pool.num_free + len(freed) - hit_free - needed >= keep_free

    def open(self, state: RequestState, hit: PrefixHit, *, upto: int, keep_free: int = 0) -> bool:
        """A table for the first `upto` tokens, beginning with the hit; False and no change if the pool cannot."""
        if not self.could_open(hit, upto=upto, keep_free=keep_free):
            return False
        assert state.request.id not in self._tables
        self._pool.share(hit.block_ids)
        fresh = self._pool.take(self.blocks_for(upto) - len(hit.block_ids))
        block_ids = (*hit.block_ids, *fresh)
        self._tables[state.request.id] = BlockTable(
            block_ids, len(block_ids) * self.block_size, num_published=len(hit.block_ids)
        )
        return True

    def grow(self, request_id: RequestId, *, upto: int) -> bool:
        """Make room for `upto` tokens; False and no change if the pool cannot."""
        table = self._tables[request_id]
        missing = self.blocks_for(upto) - len(table.block_ids)
        if missing <= 0:
            return True
        if missing > self._pool.num_free:
            return False
        table.block_ids = (*table.block_ids, *self._pool.take(missing))
        table.capacity = len(table.block_ids) * self.block_size
        return True

    def publish(self, state: RequestState) -> None:
        """Announce the full blocks that `state.num_computed_tokens` has completed."""
        if not self.prefix_caching:
            return
        table = self._tables[state.request.id]
        num_full = state.num_computed_tokens // self.block_size
        for index in range(table.num_published, num_full):
            self._pool.publish(table.block_ids[index], self._block_hash(state, index))
        table.num_published = max(table.num_published, num_full)

    def close(self, request_id: RequestId) -> None:
        self._pool.release(self._tables.pop(request_id).block_ids)

    def _block_hash(self, state: RequestState, index: int) -> BlockHash:
        hashes = state.block_hashes
        size = self.block_size
        while len(hashes) <= index:
            begin = len(hashes) * size
            parent = hashes[-1] if hashes else sha256(state.request.cache_salt.encode()).digest()
            tokens = array("q", state.token_ids[begin : begin + size]).tobytes()
            hashes.append(sha256(parent + tokens).digest())
        return hashes[index]

    def check(self, states: Iterable[RequestState]) -> None:
        """Re-derive and compare everything; `states` are the requests that should have a table. O(pool)."""
        references = [0] * self._pool.num_blocks
        by_id = {state.request.id: state for state in states}
        assert by_id.keys() == self._tables.keys()
        for request_id, table in self._tables.items():
            assert len(set(table.block_ids)) == len(table.block_ids)
            assert table.capacity == len(table.block_ids) * self.block_size
            assert table.capacity >= by_id[request_id].num_computed_tokens
            self._check_published(by_id[request_id], table.block_ids[: table.num_published])
            for block_id in table.block_ids:
                references[block_id] += 1
        self._pool.check(references)

    def _check_published(self, state: RequestState, block_ids: Sequence[BlockId]) -> None:
        """A published block carries its own hash, or none if another block held the same content first."""
        for index, block_id in enumerate(block_ids):
            assert self._pool.content(block_id) in (None, self._block_hash(state, index))
