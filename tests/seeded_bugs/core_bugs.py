"""Ways to break the core, each a small change of its source: (file, text that is there once, text instead)."""

from dataclasses import dataclass

Patch = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Bug:
    name: str
    patches: tuple[Patch, ...]


def bug(name: str, file: str, old: str, new: str, *more: Patch) -> Bug:
    return Bug(name, ((file, old, new), *more))


POOL, KV, QUEUE, ORDER = "block_pool.py", "kv_cache.py", "queue.py", "policy/order.py"
DRAFT, SCHEDULER, HOUSE, MEMORY_PASS = "draft.py", "scheduler.py", "house.py", "memory.py"
ROOM, ADMIT, INTAKE, CONTENT = "room.py", "admission.py", "intake.py", "content.py"

BLOCKS = (
    bug(
        "a block keeps its hash when it is taken for something else",
        POOL,
        "                hash_of[block_id] = None\n            references",
        "                pass\n            references",
    ),
    bug(
        "a block is used and on the free list",
        POOL,
        "                self._dead[block_id] = self._dead.get(block_id, 0) + 1\n",
        "                pass\n",
    ),
    bug(
        "the newest content is given up first",
        POOL,
        "free.popleft()",
        "free.pop()",
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
        "            if not left:\n",
        "            if left <= 1:\n",
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
        CONTENT,
        "sha256(last + tokens)",
        "sha256(tokens)",
    ),
    bug(
        "a block's hash does not depend on the salt",
        CONTENT,
        "sha256(state.request.cache_salt.encode())",
        'sha256(b"")',
    ),
    bug(
        "a block that is not yet full is published",
        KV,
        "num_full = state.num_computed_tokens // self.block_size",
        "num_full = min(self.blocks_for(state.num_computed_tokens), state.num_tokens // self.block_size)",
    ),
    bug(
        "blocks are published before they are computed",
        KV,
        "num_full = state.num_computed_tokens // self.block_size",
        "num_full = state.num_tokens // self.block_size",
    ),
    bug(
        "a hit may leave nothing to compute",
        KV,
        "        last = state.num_tokens - 1\n",
        "        last = state.num_tokens\n",
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
        MEMORY_PASS,
        "if num_tokens > tables[state.request.id].capacity and",
        "if num_tokens > tables[state.request.id].capacity + 1 and",
    ),
    bug(
        "an abort keeps the blocks",
        SCHEDULER,
        "        if state.status is _RUNNING:\n            self._house.leave(state)\n",
        "        if state.status is _RUNNING:\n            self._house.running.remove(state)\n"
        "            self._house.left.append(request_id)\n",
    ),
    bug(
        "a request that does not fit even alone is accepted",
        INTAKE,
        "blocks * policy.limits.block_size + 1)",
        "blocks * policy.limits.block_size + 2)",
    ),
    bug(
        "the watermark holds in an idle engine",
        ROOM,
        "house.config.watermark_blocks if len(house.running) > len(self.victims) else 0",
        "house.config.watermark_blocks",
    ),
    bug(
        "the watermark is forgotten",
        ROOM,
        "house.config.watermark_blocks if len(house.running) > len(self.victims) else 0",
        "0",
    ),
)

PREEMPTION = (
    bug(
        "the victim is the most deserving",
        MEMORY_PASS,
        "for victim in reversed(running[index + 1 :]):",
        "for victim in running[index + 1 :]:",
    ),
    bug(
        "the preempted still claims computed tokens",
        HOUSE,
        "            victim.num_computed_tokens = 0\n",
        "",
    ),
    bug(
        "the resumed believes that nothing of it is lost",
        HOUSE,
        "        state.num_computed_tokens = hit.num_tokens\n",
        "        state.num_computed_tokens = max(hit.num_tokens, state.num_computed_tokens)\n",
        (
            HOUSE,
            "            victim.num_computed_tokens = 0\n",
            "",
        ),
    ),
    bug(
        "somebody comes in while memory is being taken back",
        ADMIT,
        "    if draft.preempted:\n        return WaitReason.PREEMPTION\n",
        "",
    ),
    bug(
        "the preempted goes to the end of the line",
        HOUSE,
        "        victim.num_preemptions += 1\n",
        "        victim.num_preemptions += 1\n        victim.key = (*victim.key[:-2], now, victim.key[-1] + 1000)\n",
    ),
    bug(
        "the executor is not told that the preempted left",
        HOUSE,
        "        self.left.append(state.request.id)\n",
        "        if state.num_preemptions or not self.running:\n            self.left.append(state.request.id)\n",
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
        ROOM,
        "        if free < 1:\n",
        "        if free < 0:\n",
    ),
    bug(
        "a full house keeps the urgent out",
        ROOM,
        "            if not self._add_victim(shortage):\n                return shortage.reason\n",
        "            return shortage.reason\n",
    ),
    bug(
        "equals displace each other",
        ORDER,
        "return waiting.priority < running.priority",
        "return waiting.priority <= running.priority",
    ),
    bug(
        "more are displaced than need be",
        ROOM,
        "            if kv.could_open(hit, upto=upto, keep_free=keep_free, without=without):",
        "            if without and kv.could_open(hit, upto=upto, keep_free=keep_free, without=without):",
    ),
    bug(
        "a long prompt of lower priority keeps the urgent out",
        DRAFT,
        "        if state.key > head.key:\n            break\n",
        "",
    ),
    bug(
        "who just entered is displaced by another flow",
        ROOM,
        " or victim.request.id in self._entered:",
        ":",
    ),
    bug(
        "a shut door stops those who run",
        SCHEDULER,
        "        num_served = hand_out_tokens(draft, split, house.policy, self._kv)\n",
        "        num_served = 0 if draft.doors else hand_out_tokens(draft, split, house.policy, self._kv)\n",
    ),
    bug(
        "a door that is shut for want of budget gives no reason",
        ADMIT,
        "            case _:\n                draft.doors.append(",
        "            case WaitReason.BUDGET:\n                return\n"
        "            case _:\n                draft.doors.append(",
    ),
    bug(
        "the displaced wait behind no door",
        ADMIT,
        "            case None:\n                continue\n",
        "            case None:\n                if draft.preempted:\n                    return\n"
        "                continue\n",
    ),
    bug(
        "an aborted request stays in the queue",
        SCHEDULER,
        "            self._house.drop(state)\n        self._end(",
        "            pass\n        self._end(",
    ),
    bug(
        "the aborted stay in memory behind a head that waits",
        QUEUE,
        "if len(self._heap) > 2 * len(self._live) + 8:",
        "if False:",
    ),
    bug(
        "a dead entry becomes the head when its id comes again",
        QUEUE,
        "return self._live.get(entry[1].request.id) is entry",
        "return entry[1].request.id in self._live",
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
        "tokens, block_ids, end == state.num_tokens)",
        "tokens, block_ids, end >= state.num_prompt_tokens)",
    ),
    bug(
        "a running prefill without a token is given no reason",
        DRAFT,
        "        if count == 0:\n",
        "        if count == 0 and not is_long:\n            continue\n        if count == 0:\n",
    ),
    bug(
        "the last token of a prompt counts as a decode",
        DRAFT,
        "if start < state.num_prompt_tokens:",
        "if start < 0:",
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
        "        self._emit(Finished.of(state, reason, self._house.step, now, content=self._keeps_log))\n",
        "        for _ in range(2):\n"
        "            self._emit(Finished.of(state, reason, self._house.step, now, content=self._keeps_log))\n",
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
        HOUSE,
        "        if not resumed:\n            state.num_cached_tokens = num_cached\n",
        "        state.num_cached_tokens = num_cached\n        if not resumed:\n",
    ),
)

BUGS = (*BLOCKS, *HASHES, *MEMORY, *PREEMPTION, *ADMISSION, *TOKENS)
