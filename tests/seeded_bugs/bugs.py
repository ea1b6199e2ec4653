"""Ways to break the core, each a small change of its source: (file, text that is there once, text instead)."""

from dataclasses import dataclass

Patch = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Bug:
    name: str
    patches: tuple[Patch, ...]


def bug(name: str, file: str, old: str, new: str, *more: Patch) -> Bug:
    return Bug(name, ((file, old, new), *more))


POOL, KV, QUEUE, POLICY = "block_pool.py", "kv_cache.py", "queue.py", "policy.py"
HOST, PREEMPT = "host_pool.py", "preemption.py"
DRAFT, SCHEDULER = "draft.py", "scheduler.py"

BLOCKS = (
    bug(
        "a block keeps its hash when it is taken for something else",
        POOL,
        "            self._forget(block_id)\n",
        "",
    ),
    bug(
        "a block is used and on the free list",
        POOL,
        "                del self._free[block_id]\n            self._references[block_id] += 1",
        "                pass\n            self._references[block_id] += 1",
    ),
    bug(
        "the newest content is given up first",
        POOL,
        "self._free.popitem(last=False)",
        "self._free.popitem(last=True)",
    ),
    bug(
        "the head of a table is given up before its tail",
        POOL,
        "in reversed(block_ids):",
        "in block_ids:",
    ),
    bug(
        "a shared block is freed by the first who leaves",
        POOL,
        "            self._references[block_id] -= 1\n            if self._references[block_id] == 0:",
        "            self._references[block_id] -= 1\n            if self._references[block_id] <= 1:",
    ),
    bug(
        "a second copy of a content replaces the first",
        POOL,
        "        if block_hash not in self._block_of:\n            assert self._hash_of[block_id] is None\n",
        "        if True:\n",
    ),
    bug(
        "blocks are released twice",
        KV,
        "        self._pool.release(self._tables.pop(request_id).block_ids)",
        "        block_ids = self._tables.pop(request_id).block_ids\n"
        "        self._pool.release(block_ids)\n"
        "        self._pool.release(block_ids[:1])",
    ),
)

HASHES = (
    bug(
        "a block's hash does not depend on what came before",
        KV,
        "sha256(parent + tokens)",
        "sha256(tokens)",
    ),
    bug(
        "a block's hash does not depend on the salt",
        KV,
        "sha256(state.request.cache_salt.encode())",
        'sha256(b"")',
    ),
    bug(
        "a block that is not yet full is published",
        KV,
        "num_full = num_computed_tokens // self.block_size",
        "num_full = min(self.blocks_for(num_computed_tokens), state.num_tokens // self.block_size)",
    ),
    bug(
        "blocks are published before they are computed",
        KV,
        "num_full = num_computed_tokens // self.block_size",
        "num_full = state.num_tokens // self.block_size",
    ),
    bug(
        "a hit may leave nothing to compute",
        KV,
        "last = state.num_tokens - 1\n",
        "last = state.num_tokens\n",
    ),
    bug(
        "a hit skips over a block that is gone",
        KV,
        "            if block_id is None:\n                break\n",
        "            if block_id is None:\n                continue\n",
    ),
    bug(
        "prompt log-probabilities are taken from a cached prefix",
        KV,
        "if state.request.sampling.prompt_logprobs is not None:",
        "if False:",
    ),
)

MEMORY = (
    bug(
        "a table is one block short",
        KV,
        "fresh = self._pool.take(self.blocks_for(upto) - len(hit.block_ids))",
        "fresh = self._pool.take(self.blocks_for(upto - 1) - len(hit.block_ids))",
    ),
    bug(
        "free blocks of the hit are counted as free to take",
        KV,
        "        return self._pool.num_free + len(freed) - hit_free - needed >= keep_free",
        "        return self._pool.num_free + len(freed) - needed >= keep_free",
    ),
    bug(
        "blocks that others share are counted as freed by a victim",
        KV,
        "if self._pool.references(b) == count}",
        "}",
    ),
    bug(
        "a table grows one token too late",
        SCHEDULER,
        "if num_tokens > kv.table(state.request.id).capacity:",
        "if num_tokens > kv.table(state.request.id).capacity + 1:",
    ),
    bug(
        "an abort keeps the blocks",
        SCHEDULER,
        "        if state.status is _RUNNING:\n            self._leave(state)\n",
        "        if state.status is _RUNNING:\n            self._running.remove(state)\n"
        "            self._left.append(request_id)\n",
    ),
    bug(
        "a request that does not fit even alone is accepted",
        SCHEDULER,
        "self._kv.num_blocks * self._kv.block_size + 1)",
        "self._kv.num_blocks * self._kv.block_size + 2)",
    ),
    bug(
        "the watermark holds in an idle engine",
        SCHEDULER,
        "keep_free = self._config.watermark_blocks if num_left else 0",
        "keep_free = self._config.watermark_blocks",
    ),
    bug(
        "the watermark is forgotten",
        SCHEDULER,
        "keep_free = self._config.watermark_blocks if num_left else 0",
        "keep_free = 0",
    ),
)

PREEMPTION = (
    bug(
        "the victim is the most deserving",
        SCHEDULER,
        "                    victim = running[-1]\n",
        "                    victim = running[index]\n",
    ),
    bug(
        "the preempted still claims computed tokens",
        SCHEDULER,
        "            victim.num_computed_tokens = 0\n",
        "",
    ),
    bug(
        "the resumed believes that nothing of it is lost",
        SCHEDULER,
        "        head.num_computed_tokens = hit.num_tokens\n",
        "        head.num_computed_tokens = max(hit.num_tokens, head.num_computed_tokens)\n",
        (SCHEDULER, "            victim.num_computed_tokens = 0\n", ""),
    ),
    bug(
        "somebody comes in while memory is being taken back",
        SCHEDULER,
        "pressed = bool(draft.preempted)",
        "pressed = False",
    ),
    bug(
        "the preempted goes to the end of the line",
        SCHEDULER,
        "        victim.num_preemptions += 1\n",
        "        victim.num_preemptions += 1\n"
        "        self._accepted += 1\n"
        "        victim.key = (*victim.key[:-2], now, self._accepted)\n",
    ),
    bug(
        "the executor is not told that the preempted left",
        SCHEDULER,
        "        self._left.append(state.request.id)\n",
        "        if state.num_preemptions or not self._running:\n            self._left.append(state.request.id)\n",
    ),
    bug(
        "the first token is told again after a preemption",
        SCHEDULER,
        "        if num_output == 1:\n            self._emit(FirstToken",
        "        if num_output == 1 or state.num_preemptions == 1:\n            self._emit(FirstToken",
    ),
    bug(
        "a stop token after a preemption is overlooked",
        SCHEDULER,
        "stopped = token_id in state.stop_token_ids and",
        "stopped = token_id in state.stop_token_ids and not state.num_preemptions and",
    ),
)

ADMISSION = (
    bug(
        "one request too many runs",
        SCHEDULER,
        "len(running) < self._config.max_num_seqs or",
        "len(running) <= self._config.max_num_seqs or",
        (SCHEDULER, "seat = num_left < self._config.max_num_seqs", "seat = num_left <= self._config.max_num_seqs"),
    ),
    bug(
        "a full house keeps the urgent out",
        SCHEDULER,
        "return len(running) < self._config.max_num_seqs or self._policy.order.displaces(\n"
        "            head.request, running[-1].request\n        )",
        "return len(running) < self._config.max_num_seqs",
    ),
    bug(
        "equals displace each other",
        POLICY,
        "return waiting.priority < running.priority",
        "return waiting.priority <= running.priority",
    ),
    bug(
        "more are displaced than need be",
        SCHEDULER,
        "            if seat and self._kv.could_open(",
        "            if seat and victims and self._kv.could_open(",
    ),
    bug(
        "a long prompt of lower priority keeps the urgent out",
        SCHEDULER,
        "            if state.key < head.key:\n                break\n",
        "            break\n",
    ),
    bug(
        "who just entered is displaced by another flow",
        SCHEDULER,
        "\n                or victim.request in entered\n",
        "\n",
    ),
    bug(
        "a shut door stops those who run",
        SCHEDULER,
        "        hand_out_tokens(draft, split, self._running, self._kv)\n",
        "        if not draft.doors:\n            hand_out_tokens(draft, split, self._running, self._kv)\n",
    ),
    bug(
        "a door that is shut for want of budget gives no reason",
        SCHEDULER,
        "            if reason is not None:\n                draft.doors.append(Door(flow, head.request.id, reason))\n",
        "            if reason is not None:\n                if reason is not WaitReason.BUDGET:\n"
        "                    draft.doors.append(Door(flow, head.request.id, reason))\n",
    ),
    bug(
        "the displaced wait behind no door",
        SCHEDULER,
        "        if draft.preempted and not pressed:\n",
        "        if False:\n",
    ),
    bug(
        "an aborted request stays in the queue",
        SCHEDULER,
        "            self._waiting.remove(self._policy.fairness.flow_of(state.request), state)\n        self._end(",
        "            pass\n        self._end(",
    ),
    bug(
        "the aborted stay in memory behind a head that waits",
        QUEUE,
        "if len(flow.heap) > 2 * len(flow.live) + 8:",
        "if False:",
    ),
    bug(
        "a dead entry becomes the head when its id comes again",
        QUEUE,
        "while flow.live.get(flow.heap[0][1].request.id) is not flow.heap[0][1]:",
        "while flow.heap[0][1].request.id not in flow.live:",
    ),
)

TOKENS = (
    bug(
        "a step feeds one token more than its budget",
        DRAFT,
        "    left = split.prefill_tokens\n",
        "    left = split.prefill_tokens + 1\n",
    ),
    bug(
        "a recompute gives a token at the end of the prompt",
        DRAFT,
        "kv.table(request_id).block_ids, end == state.num_tokens)",
        "kv.table(request_id).block_ids, end >= state.num_prompt_tokens)",
    ),
    bug(
        "a running prefill without a token is given no reason",
        DRAFT,
        "            draft.left_out.append(LeftOut(request_id, split.prefill_limit))\n",
        "",
    ),
    bug(
        "the last token of a prompt counts as a decode",
        DRAFT,
        "num_first += start < len(state.request.prompt_token_ids)",
        "num_first += start < 0",
    ),
    bug(
        "attended context leaves out the token itself",
        DRAFT,
        "count * start + count * (count + 1) // 2",
        "count * start + count * (count - 1) // 2",
    ),
    bug(
        "an answer is one token too long",
        SCHEDULER,
        "elif num_output >= request.sampling.max_tokens:",
        "elif num_output > request.sampling.max_tokens:",
    ),
    bug(
        "min_tokens is ignored",
        SCHEDULER,
        "stopped = token_id in state.stop_token_ids and num_output >= request.sampling.min_tokens",
        "stopped = token_id in state.stop_token_ids",
    ),
    bug(
        "Finished is told twice",
        SCHEDULER,
        "        self._emit(\n            Finished(",
        "        for _ in range(2): self._emit(\n            Finished(",
    ),
    bug(
        "what an aborted request had in flight goes to the next of its id",
        SCHEDULER,
        "if state is None or state.status is not _RUNNING or state.num_computed_tokens != start:",
        "if state is None:",
    ),
    bug(
        "log-probabilities of the prompt are reported again after a preemption",
        SCHEDULER,
        "    return entries[max(0, known - start) :]\n",
        "    return entries\n",
    ),
    bug(
        "cached tokens are told again after a resume",
        SCHEDULER,
        "        if not resumed:\n            head.num_cached_tokens",
        "        if True:\n            head.num_cached_tokens",
    ),
)

SWAP = (
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
        "an abort keeps host blocks",
        SCHEDULER,
        "            self._kv.discard(request_id)\n",
        "",
    ),
    bug(
        "an aborted swapped request claims what it computed",
        SCHEDULER,
        "            state.num_computed_tokens = 0\n        self._end(",
        "        self._end(",
    ),
    bug(
        "what is swapped is computed again",
        SCHEDULER,
        "            victim.move_to(RequestStatus.SWAPPED)\n",
        "            victim.move_to(RequestStatus.SWAPPED)\n            victim.num_computed_tokens = 0\n",
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
        "what is copied in is published a block too far",
        KV,
        "self._publish(state, table, hit.num_tokens)",
        "self._publish(state, table, hit.num_tokens + hit.num_swapped_in_tokens)",
    ),
    bug(
        "a victim is recomputed although there is room",
        SCHEDULER,
        "if self._kv.num_host_blocks == 0:",
        "if self._kv.num_free_host_blocks < self._kv.num_host_blocks:",
    ),
    bug(
        "swapped tokens are told as cached ones",
        SCHEDULER,
        "num_cached, num_swapped_in = hit.num_cached_tokens, hit.num_swapped_in_tokens",
        "num_cached, num_swapped_in = hit.num_tokens, 0",
    ),
    bug(
        "a copy is paid for one way only",
        PREEMPT,
        "(loss.num_blocks_out + loss.num_blocks_in)",
        "loss.num_blocks_out",
    ),
    bug(
        "one slow copy is for ever",
        PREEMPT,
        "            self._block.observe(self._guess.block, 1)\n",
        "            pass\n",
    ),
)

BUGS = (*BLOCKS, *HASHES, *MEMORY, *PREEMPTION, *ADMISSION, *TOKENS, *SWAP)
