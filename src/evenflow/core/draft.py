"""The step being decided, and its last pass: the token budget is handed out.

By then it is settled who is here and that each has the blocks it needs, so this pass can refuse a token but never has
to take anything back. Every decode takes one token; prefills share what the split leaves them, front to back.
"""

from collections.abc import Sequence

from evenflow.core.kv_cache import KVCacheManager
from evenflow.core.plan import Chunk, Door, Entry, LeftOut, WaitReason
from evenflow.core.policy import TokenSplit
from evenflow.core.request import RequestId, RequestState


class Draft:
    """Lives for one call of `Scheduler.schedule`.

    `decodes` are the running requests with one known token to compute, in order; `backlog` is the number of known,
    uncomputed tokens of all others that run.
    """

    __slots__ = (
        "attended_context_tokens",
        "backlog",
        "chunks",
        "decodes",
        "doors",
        "entered",
        "left_out",
        "num_cached_tokens",
        "num_decode_tokens",
        "num_prefill_tokens",
        "preempted",
    )

    def __init__(self) -> None:
        self.decodes: list[RequestState] = []
        self.backlog = 0
        self.chunks: list[Chunk] = []
        self.entered: list[Entry] = []
        self.preempted: list[RequestId] = []
        self.left_out: list[LeftOut] = []
        self.doors: list[Door] = []
        self.num_cached_tokens = 0
        self.num_decode_tokens = 0
        self.num_prefill_tokens = 0
        self.attended_context_tokens = 0


def hand_out_tokens(draft: Draft, split: TokenSplit, running: Sequence[RequestState], kv: KVCacheManager) -> None:
    """Fill `draft.chunks` and `draft.left_out`."""
    _hand_out_decodes(draft, split, kv)
    if draft.backlog:
        _hand_out_prefills(draft, split, running, kv)


def _hand_out_decodes(draft: Draft, split: TokenSplit, kv: KVCacheManager) -> None:
    served = draft.decodes[: split.decode_tokens]
    attended = num_first = 0
    for state in served:  # the hot loop: every running request, every step
        request_id = state.request.id
        start = state.num_computed_tokens
        draft.chunks.append(Chunk(request_id, start, (state.token_ids[-1],), kv.table(request_id).block_ids, True))
        attended += start + 1
        num_first += start < len(state.request.prompt_token_ids)  # the last token of a prompt is no decode
    draft.attended_context_tokens += attended
    draft.num_prefill_tokens += num_first
    draft.num_decode_tokens += len(served) - num_first
    for state in draft.decodes[split.decode_tokens :]:
        draft.left_out.append(LeftOut(state.request.id, WaitReason.BUDGET))


def _hand_out_prefills(draft: Draft, split: TokenSplit, running: Sequence[RequestState], kv: KVCacheManager) -> None:
    decoding = {state.request.id for state in draft.decodes}
    left = split.prefill_tokens
    for state in running:
        request_id = state.request.id
        if request_id in decoding:
            continue
        start = state.num_computed_tokens
        count = min(left, state.num_tokens - start)
        if count == 0:
            draft.left_out.append(LeftOut(request_id, split.prefill_limit))
            continue
        end = start + count
        tokens = tuple(state.token_ids[start:end])
        draft.chunks.append(Chunk(request_id, start, tokens, kv.table(request_id).block_ids, end == state.num_tokens))
        left -= count
        draft.num_prefill_tokens += count
        draft.attended_context_tokens += count * start + count * (count + 1) // 2
