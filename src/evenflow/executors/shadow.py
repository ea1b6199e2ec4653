"""A KV memory that can be checked, and no model.

Each slot holds a digest of its whole prefix, written from the slot before it *through the block table*; "sampling"
reads every slot of the request. A wrong, stale, shared or short block therefore gives a wrong token, and the output of
a request run alone is the reference for the same request in any batch:

    slot(p) = H(slot(p-1), token(p))     slot(-1) = H(cache_salt)     next token = H(slot(0), ..., slot(n-1)) mod vocab

The host pool is slots too. A swapped-in block that holds anything but what was swapped out therefore shows in the next
token of whoever reads it; that a copy reads a block nobody wrote, or that two write the same, is asserted.
"""

from collections.abc import Sequence
from hashlib import blake2b

from evenflow.core.block_pool import BlockId
from evenflow.core.plan import BlockCopy, Chunk, StepOutcome, StepPlan
from evenflow.core.request import RequestId

Digest = bytes
_NEVER_WRITTEN: Digest = b"?" * 8


def _digest(*parts: bytes) -> Digest:
    return blake2b(b"".join(parts), digest_size=8).digest()


class ShadowExecutor:
    """Costs O(context) per sampled token: for tests, demonstrations and documentation."""

    def __init__(self, *, num_blocks: int, block_size: int, vocab_size: int, num_host_blocks: int = 0) -> None:
        self._block_size = block_size
        self._vocab_size = vocab_size
        self._slots = [_NEVER_WRITTEN] * (num_blocks * block_size)
        self._host_slots = [_NEVER_WRITTEN] * (num_host_blocks * block_size)
        self._salts: dict[RequestId, bytes] = {}

    def execute(self, plan: StepPlan, /) -> StepOutcome:
        for request_id in plan.left:
            self._salts.pop(request_id, None)
        for entry in plan.entered:
            self._salts[entry.request.id] = entry.request.cache_salt.encode()
        self._copy(plan.swap_out, self._slots, self._host_slots)
        self._copy(plan.swap_in, self._host_slots, self._slots)
        for chunk in plan.chunks:
            self._write(chunk)
        return StepOutcome({chunk.request_id: self._sample(chunk) for chunk in plan.chunks if chunk.samples})

    def _copy(self, copies: Sequence[BlockCopy], source: Sequence[Digest], target: list[Digest]) -> None:
        size = self._block_size
        assert len({copy.target for copy in copies}) == len(copies), "two copies into one block"
        for copy in copies:
            content = source[copy.source * size : (copy.source + 1) * size]
            assert content[0] != _NEVER_WRITTEN, "a copy of a block that nobody wrote"
            target[copy.target * size : (copy.target + 1) * size] = content

    def _slot(self, block_ids: Sequence[BlockId], position: int) -> int:
        return block_ids[position // self._block_size] * self._block_size + position % self._block_size

    def _write(self, chunk: Chunk) -> None:
        before = (
            self._slots[self._slot(chunk.block_ids, chunk.start - 1)]
            if chunk.start
            else _digest(self._salts[chunk.request_id])
        )
        for position, token_id in enumerate(chunk.token_ids, chunk.start):
            before = _digest(before, token_id.to_bytes(8, "little"))
            self._slots[self._slot(chunk.block_ids, position)] = before

    def _sample(self, chunk: Chunk) -> int:
        end = chunk.start + len(chunk.token_ids)
        everything = _digest(*(self._slots[self._slot(chunk.block_ids, p)] for p in range(end)))
        return int.from_bytes(everything, "little") % self._vocab_size
