"""The KV bookkeeping against a model that is slow and obvious: lists, whole prefixes instead of hashes, no counters.

The model predicts every block id, every hit, every copy and every refusal. A block's content is the whole text up to
its end, as the memory itself would hold it, so a hit on anything else is found out at once. Host memory is modelled by
the same lists.
"""

from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from evenflow.core.block_pool import BlockId
from evenflow.core.kv_cache import KVCacheManager
from evenflow.core.plan import BlockCopy
from evenflow.core.request import Request, RequestId, RequestState, SamplingParams

Content = tuple[str, tuple[int, ...]]  # salt, and every token up to the end of the block


@dataclass
class NaivePool:
    """`free` is oldest first. `content` is what a block is known to hold; only its first holder is listed."""

    free: list[int]
    content: dict[int, Content] = field(default_factory=dict)
    tables: dict[RequestId, list[int]] = field(default_factory=dict)

    def used(self, block: int) -> bool:
        return any(block in table for table in self.tables.values())

    def hit(self, salt: str, token_ids: list[int], size: int) -> list[int]:
        """Leaves at least one token to compute."""
        found: list[int] = []
        for end in range(size, len(token_ids), size):
            holders = [b for b, c in self.content.items() if c == (salt, tuple(token_ids[:end]))]
            if not holders:
                break
            found += holders
        return found

    def take(self, count: int) -> list[int]:
        taken, self.free = self.free[:count], self.free[count:]
        for block in taken:
            self.content.pop(block, None)
        return taken

    def open(self, request_id: RequestId, hit: list[int], count: int) -> None:
        self.free = [block for block in self.free if block not in hit]
        self.tables[request_id] = hit + self.take(count - len(hit))

    def close(self, request_id: RequestId) -> None:
        for block in reversed(self.tables.pop(request_id)):
            if self.used(block):
                continue
            if block in self.content:
                self.free.append(block)
            else:
                self.free.insert(0, block)

    def publish(self, block: int, content: Content) -> None:
        if content not in self.content.values():
            self.content[block] = content

    def find(self, content: Content | None) -> int | None:
        return next((b for b, c in self.content.items() if c == content), None)


class KVMachine(RuleBasedStateMachine):
    @initialize(blocks=st.integers(1, 8), size=st.integers(1, 3), host_blocks=st.integers(0, 8))
    def make(self, blocks: int, size: int, host_blocks: int) -> None:
        self.size = size
        self.kv = KVCacheManager(num_blocks=blocks, block_size=size, num_host_blocks=host_blocks)
        self.naive = NaivePool(list(range(blocks)))
        self.host = NaivePool(list(range(host_blocks)))
        self.opened: list[RequestState] = []
        self.swapped: list[RequestState] = []
        self.restored: list[RequestId] = []
        self.moved: list[RequestState] = []  # in this step: nobody goes out and comes in in the same
        self.out: list[BlockCopy] = []
        self.into: list[BlockCopy] = []
        self.count = 0

    def blocks_for(self, num_tokens: int) -> int:
        return len(range(0, num_tokens, self.size))

    def full_blocks(self, state: RequestState) -> list[Content]:
        ends = range(self.size, state.num_computed_tokens + 1, self.size)
        return [(state.request.cache_salt, tuple(state.token_ids[:end])) for end in ends]

    @rule(
        token_ids=st.lists(st.integers(0, 1), min_size=1, max_size=9),
        salt=st.sampled_from(["", "", "salt"]),
        spare=st.integers(0, 2),
        keep_free=st.integers(0, 2),
    )
    def open(self, token_ids: list[int], salt: str, spare: int, keep_free: int) -> None:
        self.count += 1
        request_id = RequestId(f"r{self.count}")
        request = Request(request_id, tuple(token_ids), SamplingParams(), 0.0, cache_salt=salt)
        state = RequestState(request, key=(self.count,))
        hit = self.kv.lookup(state)
        expected = self.naive.hit(salt, token_ids, self.size)
        assert list(hit.block_ids) == expected
        assert hit.num_tokens == hit.num_cached_tokens == len(expected) * self.size
        assert hit.host_block_ids == ()
        count = self.blocks_for(len(token_ids) + spare)
        free_after = len([b for b in self.naive.free if b not in expected]) - (count - len(expected))
        fits = free_after >= keep_free
        upto = len(token_ids) + spare
        assert self.kv.could_open(hit, upto=upto, keep_free=keep_free) == fits
        assert self.kv.open(state, hit, upto=upto, keep_free=keep_free) == fits
        if fits:
            self.naive.open(request_id, expected, count)
            state.num_computed_tokens = hit.num_tokens
            self.opened.append(state)

    @precondition(lambda self: self.opened)
    @rule(data=st.data())
    def compute(self, data: st.DataObject) -> None:
        state = data.draw(st.sampled_from(self.opened))
        table = self.naive.tables[state.request.id]
        start = state.num_computed_tokens
        end = data.draw(st.integers(start, min(state.num_tokens, len(table) * self.size)))
        state.num_computed_tokens = end
        self.kv.publish(state)
        for index in range(start // self.size, end // self.size):  # announced once, when it becomes full
            text = tuple(state.token_ids[: (index + 1) * self.size])
            self.naive.publish(table[index], (state.request.cache_salt, text))

    @precondition(lambda self: self.opened)
    @rule(data=st.data(), token_id=st.integers(0, 1))
    def append_and_grow(self, data: st.DataObject, token_id: int) -> None:
        state = data.draw(st.sampled_from(self.opened))
        state.token_ids.append(token_id)
        table = self.naive.tables[state.request.id]
        missing = max(0, self.blocks_for(state.num_tokens) - len(table))
        fits = missing <= len(self.naive.free)
        assert self.kv.grow(state.request.id, upto=state.num_tokens) == fits
        if fits:
            table += self.naive.take(missing)

    @precondition(lambda self: self.opened)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        state = data.draw(st.sampled_from(self.opened))
        self.opened.remove(state)
        self.kv.close(state.request.id)
        self.naive.close(state.request.id)

    @precondition(lambda self: any(state not in self.moved for state in self.opened))
    @rule(data=st.data())
    def swap_out(self, data: st.DataObject) -> None:
        state = data.draw(st.sampled_from([state for state in self.opened if state not in self.moved]))
        request_id, table = state.request.id, self.naive.tables[state.request.id]
        contents: list[Content | None] = [*self.full_blocks(state)]
        contents += [None] * (self.blocks_for(state.num_computed_tokens) - len(contents))
        found = [self.host.find(content) for content in contents]
        num_fresh = found.count(None)
        num_free = len([block for block in self.host.free if block not in found])
        fits = bool(contents) and num_fresh <= num_free
        loss = self.kv.loss(state)
        assert loss.num_blocks_out == num_fresh
        shared = [any(b in t for r, t in self.naive.tables.items() if r != request_id) for b in table[: len(contents)]]
        num_kept = [*shared, False].index(False)
        assert loss.num_blocks_in == len(contents) - num_kept
        assert loss.num_tokens == max(0, state.num_computed_tokens - num_kept * self.size)
        assert self.kv.swap_out(state) == fits
        if not fits:
            return
        self.host.free = [block for block in self.host.free if block not in found]
        fresh = self.host.take(num_fresh)
        kept = [fresh.pop(0) if block is None else block for block in found]
        self.host.tables[request_id] = kept
        for index, content in enumerate(contents):
            if found[index] is None:
                self.out.append(BlockCopy(BlockId(table[index]), BlockId(kept[index])))
                if content is not None:
                    self.host.publish(kept[index], content)
        self.opened.remove(state)
        self.swapped.append(state)
        self.moved.append(state)
        self.naive.close(request_id)

    @precondition(lambda self: any(state not in self.moved for state in self.swapped))
    @rule(data=st.data(), keep_free=st.integers(0, 1))
    def swap_in(self, data: st.DataObject, keep_free: int) -> None:
        state = data.draw(st.sampled_from([state for state in self.swapped if state not in self.moved]))
        request_id, upto = state.request.id, state.num_tokens
        hit = self.kv.lookup(state)
        expected = self.naive.hit(state.request.cache_salt, state.token_ids, self.size)
        there = max(state.num_computed_tokens, len(expected) * self.size)
        assert list(hit.block_ids) == expected
        assert (hit.num_tokens, hit.num_cached_tokens) == (there, len(expected) * self.size)
        assert list(hit.host_block_ids) == self.host.tables[request_id][len(expected) :]
        count = self.blocks_for(upto)
        fits = len([b for b in self.naive.free if b not in expected]) - (count - len(expected)) >= keep_free
        assert self.kv.open(state, hit, upto=upto, keep_free=keep_free) == fits
        if not fits:
            return
        self.naive.open(request_id, expected, count)
        state.num_computed_tokens = there
        table = self.naive.tables[request_id]
        targets = map(BlockId, table[len(expected) :])  # and room to grow
        self.into += [BlockCopy(*pair) for pair in zip(hit.host_block_ids, targets, strict=False)]
        for block, content in zip(table, self.full_blocks(state), strict=False):
            self.naive.publish(block, content)
        self.host.tables[RequestId(f"restored {request_id}")] = self.host.tables.pop(request_id)
        self.restored.append(request_id)
        self.swapped.remove(state)
        self.opened.append(state)
        self.moved.append(state)

    @rule()
    def end_of_planning(self) -> None:
        assert self.kv.take_copies() == (tuple(self.out), tuple(self.into))
        assert not {copy.target for copy in self.out} & {copy.source for copy in self.into}
        self.out.clear()
        self.into.clear()
        for request_id in self.restored:
            self.host.close(RequestId(f"restored {request_id}"))
        self.restored.clear()
        self.moved.clear()

    @precondition(lambda self: self.swapped)
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        state = data.draw(st.sampled_from(self.swapped))
        self.swapped.remove(state)
        self.kv.discard(state.request.id)
        self.host.close(state.request.id)

    @precondition(lambda self: self.opened)
    @rule(data=st.data(), keep_free=st.integers(0, 2))
    def could_open_without(self, data: st.DataObject, keep_free: int) -> None:
        """Asking what closing others would free changes nothing, and agrees with closing them."""
        model = data.draw(st.sampled_from(self.opened))
        going = data.draw(st.lists(st.sampled_from(self.opened), unique_by=id))
        newcomer = RequestState(model.request, key=(0,))
        hit = self.kv.lookup(newcomer)
        answer = self.kv.could_open(
            hit, upto=newcomer.num_tokens, keep_free=keep_free, without=[state.request.id for state in going]
        )
        staying = [b for state in self.opened if state not in going for b in self.naive.tables[state.request.id]]
        free = self.kv.num_blocks - len(set(staying))
        needed = self.blocks_for(newcomer.num_tokens) - len([b for b in hit.block_ids if b in staying])
        assert answer == (free - needed >= keep_free)

    @invariant()
    def tables_and_free_list_agree(self) -> None:
        if not hasattr(self, "kv"):
            return
        self.kv.check(self.opened, self.swapped)
        assert self.kv.num_free_blocks == len(self.naive.free)
        assert self.kv.num_free_host_blocks == len(self.host.free)
        for request_id, table in self.naive.tables.items():
            assert list(self.kv.table(request_id).block_ids) == table


TestKVMachine = KVMachine.TestCase
