"""The step being decided, and its last pass: the token budget is handed out.

By then it is settled who is here and that each has the blocks it needs, so this pass can refuse a token but never has
to take anything back. Every decode takes one token, the longest left out first; prefills share what the split leaves
them, front to back, long prompts within their own share.
"""

from functools import partial

from evenflow.core.kv_cache import KVCacheManager
from evenflow.core.plan import Chunk, Door, Entry, LeftOut, WaitReason
from evenflow.core.policy.interleave import TokenSplit
from evenflow.core.policy.scheduling import SchedulingPolicy
from evenflow.core.request import RequestId, RequestState


class Draft:
    """Lives for one call of `Scheduler.schedule`.

    `decodes` are the running requests with one known token to compute, `prefills` those with more and whoever enters in
    this step; both in order. Contexts are summed over fed tokens: the positions that each attends to.
    """

    __slots__ = (
        "chunks",
        "decode_context",
        "decodes",
        "doors",
        "entered",
        "left_out",
        "newcomers",
        "num_cached_tokens",
        "num_decode_tokens",
        "num_prefill_tokens",
        "preempted",
        "prefill_context",
        "prefills",
    )

    def __init__(self) -> None:
        self.decodes: list[RequestState] = []
        self.prefills: list[RequestState] = []
        self.chunks: list[Chunk] = []
        self.entered: list[Entry] = []
        self.newcomers: set[RequestId] = set()
        self.preempted: list[RequestId] = []
        self.left_out: list[LeftOut] = []
        self.doors: list[Door] = []
        self.num_cached_tokens = 0
        self.num_decode_tokens = 0
        self.num_prefill_tokens = 0
        self.decode_context = 0
        self.prefill_context = 0

    @property
    def backlog(self) -> int:
        """Prefill tokens that are wanted."""
        return sum([state.num_remaining_tokens for state in self.prefills]) if self.prefills else 0

    @property
    def first_prefill_position(self) -> int:
        return self.prefills[0].num_computed_tokens if self.prefills else 0

    def drop(self, victim: RequestState) -> None:
        """It was displaced after the first pass."""
        (self.decodes if victim in self.decodes else self.prefills).remove(victim)


_chunk = partial(tuple.__new__, Chunk)
"""A Chunk of its fields, in a third of the time."""


def hand_out_tokens(draft: Draft, split: TokenSplit, policy: SchedulingPolicy, kv: KVCacheManager) -> int:
    """Fill `draft.chunks` and `draft.left_out`. How many decodes were served."""
    num_served = _hand_out_decodes(draft, split, kv)
    if draft.prefills:
        _hand_out_prefills(draft, split, policy, kv)
    return num_served


def _hand_out_decodes(draft: Draft, split: TokenSplit, kv: KVCacheManager) -> int:
    served = draft.decodes[: split.decode_tokens]
    attended, num_first, tables, add = len(served), 0, kv.tables, draft.chunks.append
    for state in served:  # the hot loop: every running request, every step
        request_id, start = state.request.id, state.num_computed_tokens
        add(_chunk((request_id, start, (state.token_ids[-1],), tables[request_id].block_ids, True)))
        attended += start
        if start < state.num_prompt_tokens:  # the last token of a prompt is no decode
            num_first += 1
    draft.decode_context = attended
    draft.num_prefill_tokens += num_first
    draft.num_decode_tokens += len(served) - num_first
    for state in draft.decodes[split.decode_tokens :]:
        draft.left_out.append(LeftOut(state.request.id, split.decode_limit))
    return len(served)


def _hand_out_prefills(draft: Draft, split: TokenSplit, policy: SchedulingPolicy, kv: KVCacheManager) -> None:
    long = [state for state in draft.prefills if state.place.is_long]
    short_backlog = draft.backlog - sum([state.num_remaining_tokens for state in long])
    long_left, short_left = policy.long_prompts.shares(split.prefill_tokens, long, short_backlog)
    left = split.prefill_tokens
    for state in draft.prefills:
        is_long = state.place.is_long
        wanted = state.num_remaining_tokens
        count = min(left, wanted, long_left if is_long else short_left)
        if count < wanted and not (policy.splits_prompts or is_long or left == split.prefill_tokens):
            count = 0  # what cannot be fed whole waits, unless no step would ever hold it
        if count == 0:
            limited = is_long and left > 0
            draft.left_out.append(LeftOut(state.request.id, WaitReason.LONG_PROMPT if limited else split.prefill_limit))
            continue
        start = state.num_computed_tokens
        end = start + count
        tokens, block_ids = state.piece(start, end), kv.table(state.request.id).block_ids
        draft.chunks.append(Chunk(state.request.id, start, tokens, block_ids, end == state.num_tokens))
        left -= count
        if is_long:
            long_left -= count
        else:
            short_left -= count
        draft.num_prefill_tokens += count
        draft.prefill_context += count * start + count * (count + 1) // 2


def no_token_for(draft: Draft, head: RequestState, policy: SchedulingPolicy, split: TokenSplit) -> WaitReason | None:
    """Why `head` would get no token if it came in now; None if it would. Prefills before it are served first."""
    if not (draft.prefills or head.place.is_long):
        return None if split.prefill_tokens else split.prefill_limit
    short = long = 0
    for state in draft.prefills:
        if state.key > head.key:
            break
        if state.place.is_long:
            long += state.num_remaining_tokens
        else:
            short += state.num_remaining_tokens
    in_progress = [state for state in draft.prefills if state.place.is_long]
    would_be_first = head.place.is_long and not in_progress
    long_ones = [head] if would_be_first else in_progress
    shares = policy.long_prompts.shares(split.prefill_tokens, long_ones, split.prefill_tokens)
    if would_be_first and shares.short_tokens < split.prefill_tokens:
        return None  # it has tokens of its own
    if head.place.is_long and long >= shares.long_tokens:
        return WaitReason.LONG_PROMPT
    used = short + min(long, shares.long_tokens)
    if used >= split.prefill_tokens or (not head.place.is_long and short >= shares.short_tokens):
        return split.prefill_limit
    return None
