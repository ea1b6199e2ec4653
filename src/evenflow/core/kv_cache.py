"""Paged KV bookkeeping: each request's block table, and prefix caching by chained block hashes.

Every verb is all-or-nothing and speaks block ids only; the memory itself is the executor's. Equal block hashes mean
equal whole prefixes (content.py). Only what the model has really computed is published, after the step that computed
it.

A preempted request may leave its computed blocks in host memory (host_pool.py). Its `num_computed_tokens` stays, and
when it comes back it finds the beginning where any prefix is found and the rest in its host blocks:

    | cached on the device ... | in host memory: copied into fresh blocks ... | last, partly filled | room to grow |
    0                  hit.block_ids                                     num_computed_tokens
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from evenflow.core.block_pool import BlockHash, BlockId, BlockPool
from evenflow.core.content import extend_hashes
from evenflow.core.host_pool import HostPool
from evenflow.core.plan import BlockCopy
from evenflow.core.request import RequestId, RequestState


class PrefixHit(NamedTuple):
    """The first `num_tokens` tokens of a request need not be computed: they are in cached blocks of the device, then in
    blocks of the host. Valid until a block is taken."""

    block_ids: tuple[BlockId, ...]
    num_tokens: int
    num_cached_tokens: int
    host_block_ids: tuple[BlockId, ...] = ()

    @property
    def num_swapped_in_tokens(self) -> int:
        return self.num_tokens - self.num_cached_tokens


NO_HIT = PrefixHit((), 0, 0)


class Loss(NamedTuple):
    """What it costs to take a request's blocks: `num_tokens` to be computed again, which attend to so many positions in
    sum, or so many blocks to be copied to the host and back."""

    num_tokens: int
    attended_context_tokens: int
    num_blocks_out: int
    num_blocks_in: int


@dataclass(slots=True, eq=False)
class BlockTable:
    """`capacity` is in tokens; `num_published` counts leading blocks whose content has been announced."""

    block_ids: tuple[BlockId, ...]
    capacity: int
    num_published: int = field(default=0)


class KVCacheManager:
    """`num_host_blocks` 0: nothing is ever swapped out."""

    __slots__ = ("_copies_in", "_copies_out", "_host", "_pool", "_tables", "block_size", "prefix_caching")

    def __init__(
        self, *, num_blocks: int, block_size: int, prefix_caching: bool = True, num_host_blocks: int = 0
    ) -> None:
        assert num_blocks > 0 and block_size > 0
        self.block_size = block_size
        self.prefix_caching = prefix_caching
        self._pool = BlockPool(num_blocks)
        self._host = HostPool(num_host_blocks)
        self._tables: dict[RequestId, BlockTable] = {}
        self._copies_out: list[BlockCopy] = []
        self._copies_in: list[BlockCopy] = []

    @property
    def tables(self) -> Mapping[RequestId, BlockTable]:
        """The live tables of whoever runs: for loops over all of them. Not to be changed."""
        return self._tables

    @property
    def num_blocks(self) -> int:
        return self._pool.num_blocks

    @property
    def num_free_blocks(self) -> int:
        return self._pool.num_free

    @property
    def num_host_blocks(self) -> int:
        return self._host.num_blocks

    @property
    def num_free_host_blocks(self) -> int:
        return self._host.num_free

    def num_free(self) -> tuple[int, int]:
        """Free blocks and free host blocks."""
        return self._pool.num_free, self._host.num_free

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def table(self, request_id: RequestId) -> BlockTable:
        """The live table; the scheduler reads `capacity` and `block_ids` from it each step."""
        return self._tables[request_id]

    def lookup(self, state: RequestState) -> PrefixHit:
        """What a request that does not run would find: the longest cached prefix in whole blocks that still leaves one
        token to compute, and beyond that what it has in host memory."""
        block_ids = self._cached_prefix(state)
        num_cached, num_computed = len(block_ids) * self.block_size, state.num_computed_tokens
        if not (num_cached or num_computed):
            return NO_HIT
        if num_cached >= num_computed:
            return PrefixHit(block_ids, num_cached, num_cached)
        swapped = self._host.table(state.request.id)
        return PrefixHit(block_ids, num_computed, num_cached, swapped[len(block_ids) :])

    def _cached_prefix(self, state: RequestState) -> tuple[BlockId, ...]:
        if not self.prefix_caching:
            return ()
        last = state.num_tokens - 1
        if state.request.sampling.prompt_logprobs is not None:
            last = state.num_computed_tokens  # every prompt position must run, or have run
        found: list[BlockId] = []
        for index in range(last // self.block_size):
            block_id = self._pool.find(self._block_hash(state, index))
            if block_id is None:
                break
            found.append(block_id)
        return tuple(found)

    def could_open(self, hit: PrefixHit, *, upto: int, keep_free: int = 0, without: Sequence[RequestId] = ()) -> bool:
        """Whether `open` would succeed, had the requests of `without` closed first."""
        needed = self.blocks_for(upto) - len(hit.block_ids)
        if not (without or hit.block_ids):
            return self._pool.num_free - needed >= keep_free
        released = Counter(b for request_id in without for b in self._tables[request_id].block_ids)
        freed = {b for b, count in released.items() if self._pool.references(b) == count}
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
        table = BlockTable(block_ids, len(block_ids) * self.block_size, num_published=len(hit.block_ids))
        self._tables[state.request.id] = table
        self._copies_in += map(BlockCopy, hit.host_block_ids, fresh)
        self._host.restore(state.request.id)
        self._publish(state, table, hit.num_tokens)  # what is copied in was computed
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

    def grow_each(self, request_ids: Sequence[RequestId]) -> None:
        """One more block for each, in this order. The caller has checked that there are so many free."""
        size = self.block_size
        for request_id, block_id in zip(request_ids, self._pool.take(len(request_ids)), strict=True):
            table = self._tables[request_id]
            table.block_ids = (*table.block_ids, block_id)
            table.capacity += size

    def publish(self, state: RequestState) -> None:
        """Announce the full blocks that `state.num_computed_tokens` has completed."""
        self._publish(state, self._tables[state.request.id], state.num_computed_tokens)

    def _publish(self, state: RequestState, table: BlockTable, num_computed_tokens: int) -> None:
        if not self.prefix_caching:
            return
        published, num_full = table.num_published, num_computed_tokens // self.block_size
        if num_full > published:
            if len(state.block_hashes) < num_full:
                extend_hashes(state, num_full, self.block_size)
            publish, block_ids, hashes = self._pool.publish, table.block_ids, state.block_hashes
            for index in range(published, num_full):
                publish(block_ids[index], hashes[index])
            table.num_published = num_full

    def publish_next(self, states: Iterable[RequestState]) -> None:
        """One more full block of each, in this order, where prefixes are cached; it need not be counted as computed."""
        for state in states:
            table = self._tables[state.request.id]
            index, hashes = table.num_published, state.block_hashes
            if len(hashes) <= index:
                extend_hashes(state, index + 1, self.block_size)
            self._pool.publish(table.block_ids[index], hashes[index])
            table.num_published = index + 1

    def close(self, request_id: RequestId) -> None:
        self._pool.release(self._tables.pop(request_id).block_ids)

    def loss(self, state: RequestState) -> Loss:
        """What it would cost to take a running request's blocks away, either way."""
        block_ids = self._tables[state.request.id].block_ids[: self.blocks_for(state.num_computed_tokens)]
        num_kept = 0  # others hold them: they will still be cached
        while num_kept < len(block_ids) and self._pool.references(block_ids[num_kept]) > 1:
            num_kept += 1
        num_computed = state.num_computed_tokens
        first = min(num_computed, num_kept * self.block_size)
        return Loss(
            num_tokens=num_computed - first,
            attended_context_tokens=(num_computed * (num_computed + 1) - first * (first + 1)) // 2,
            num_blocks_out=self._host.num_missing(self._contents(state)),
            num_blocks_in=len(block_ids) - num_kept,
        )

    def swap_out(self, state: RequestState) -> bool:
        """Close the table of a running request and keep what it has computed in host memory; False and no change if
        that has no room, or nothing is computed."""
        contents = self._contents(state)
        stored = self._host.store(state.request.id, contents) if contents else None
        if stored is None:
            return False
        block_ids = self._tables[state.request.id].block_ids
        self._copies_out += [BlockCopy(block_ids[index], host_block_id) for index, host_block_id in stored]
        self.close(state.request.id)
        return True

    def discard(self, request_id: RequestId) -> None:
        """A waiting request goes for good; what it has in host memory, if anything, is given up."""
        self._host.discard(request_id)

    def take_copies(self) -> tuple[tuple[BlockCopy, ...], tuple[BlockCopy, ...]]:
        """The step is planned: its copies out and in, handed over once."""
        if not self._host.num_blocks:
            return (), ()
        copies = tuple(self._copies_out), tuple(self._copies_in)
        self._copies_out.clear()
        self._copies_in.clear()
        self._host.settle()
        return copies

    def _contents(self, state: RequestState) -> list[BlockHash | None]:
        """What the blocks of a request's computed tokens hold; None for one that is not full, or not for sharing."""
        num_full = state.num_computed_tokens // self.block_size if self.prefix_caching else 0
        contents: list[BlockHash | None] = [self._block_hash(state, index) for index in range(num_full)]
        return contents + [None] * (self.blocks_for(state.num_computed_tokens) - num_full)

    def _block_hash(self, state: RequestState, index: int) -> BlockHash:
        hashes = state.block_hashes
        if len(hashes) <= index:
            extend_hashes(state, index + 1, self.block_size)
        return hashes[index]

    def layout(self) -> tuple[tuple[BlockId, ...], tuple[BlockHash | None, ...]]:
        """The free blocks, first taken first, and what each block holds. O(pool)."""
        return self._pool.layout()

    def check(self, states: Iterable[RequestState], swapped: Iterable[RequestState] = ()) -> None:
        """Re-derive and compare everything; `states` are the requests that should have a table, `swapped` those that
        should have one in host memory. O(pool)."""
        held = {state.request.id: self.blocks_for(state.num_computed_tokens) for state in swapped}
        for request_id, num_blocks in held.items():
            assert len(self._host.table(request_id)) == num_blocks > 0
        self._host.check(held.keys())
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
