"""Ways to break swapping: the host pool, the copies, and what a swapped request is taken for."""

from seeded_bugs.core_bugs import bug

HOST, KV, HOUSE, PREEMPTION, COPY_TIME, SCHEDULER = (
    "host_pool.py",
    "kv_cache.py",
    "house.py",
    "policy/preemption.py",
    "copy_time.py",
    "scheduler.py",
)

SWAP_BUGS = (
    bug(
        "host blocks that a step reads are written in it",
        HOST,
        "            self._restored.append(table)\n",
        "            self._pool.release(table)\n",
    ),
    bug(
        "host blocks are never given back",
        HOST,
        "        for table in self._restored:\n            self._pool.release(table)\n",
        "",
    ),
    bug(
        "a found host block is not kept from others",
        HOST,
        "        self._pool.share(found)\n",
        "",
    ),
    bug(
        "free host blocks that were found are counted as free to take",
        HOST,
        "if num_fresh > self._pool.num_free - num_revived:",
        "if num_fresh > self._pool.num_free:",
    ),
    bug(
        "copies go to the wrong host block",
        HOST,
        "copies = [(index, table[index]) for",
        "copies = [(index, table[-1 - index]) for",
    ),
    bug(
        "a host block is found by what it held before",
        HOST,
        "            if content is not None:\n                self._pool.publish(block_id, content)\n",
        "            if content is not None:\n                self._pool.publish(block_id, contents[0] or content)\n",
    ),
    bug(
        "an abort keeps host blocks",
        HOUSE,
        "        self.kv.discard(state.request.id)\n",
        "",
    ),
    bug(
        "an aborted swapped request claims what it computed",
        HOUSE,
        "        self.kv.discard(state.request.id)\n        state.num_computed_tokens = 0\n",
        "        self.kv.discard(state.request.id)\n",
    ),
    bug(
        "what is swapped is computed again",
        HOUSE,
        "            victim.move_to(RequestStatus.SWAPPED)\n",
        "            victim.move_to(RequestStatus.SWAPPED)\n            victim.num_computed_tokens = 0\n",
    ),
    bug(
        "a victim is recomputed although there is room",
        HOUSE,
        "if self.kv.num_host_blocks == 0:",
        "if self.kv.num_free_host_blocks < self.kv.num_host_blocks:",
    ),
    bug(
        "swapped tokens are told as cached ones",
        HOUSE,
        "num_cached, num_swapped_in = hit.num_cached_tokens, hit.num_swapped_in_tokens",
        "num_cached, num_swapped_in = hit.num_tokens, 0",
    ),
    bug(
        "the last, partly filled block is left behind",
        KV,
        "return contents + [None] * (self.blocks_for(state.num_computed_tokens) - num_full)",
        "return contents",
    ),
    bug(
        "blocks that are on the device are taken from the host as well",
        KV,
        "swapped[len(block_ids) :])",
        "swapped)",
    ),
    bug(
        "blocks are copied into the place of cached ones",
        KV,
        "map(BlockCopy, hit.host_block_ids, fresh)",
        "map(BlockCopy, hit.host_block_ids, block_ids)",
    ),
    bug(
        "the copies of a step are handed over again in the next",
        KV,
        "        self._copies_in.clear()\n",
        "",
    ),
    bug(
        "a prompt that must run in full is taken from the cache after a swap",
        KV,
        "            last = state.num_computed_tokens  # every",
        "            last = last if state.num_computed_tokens else 0  # every",
    ),
    bug(
        "more is published than was copied in",
        KV,
        "self._publish(state, table, hit.num_tokens)",
        "self._publish(state, table, hit.num_tokens + hit.num_swapped_in_tokens)",
    ),
    bug(
        "what others share is counted as lost",
        KV,
        "self._pool.references(block_ids[num_kept]) > 1",
        "self._pool.references(block_ids[num_kept]) > 2",
    ),
    bug(
        "a copy is paid for one way only",
        PREEMPTION,
        "self.copy_time.seconds(loss.num_blocks_out + loss.num_blocks_in)",
        "self.copy_time.seconds(loss.num_blocks_out)",
    ),
    bug(
        "one slow copy is believed for ever",
        COPY_TIME,
        "        self.spent_instead += seconds\n",
        "        pass\n",
    ),
    bug(
        "nobody tells what copies take",
        SCHEDULER,
        "        self._learned.copy_time.observe(len(plan.swap_out) + len(plan.swap_in), outcome.swap_seconds)\n",
        "",
    ),
)
