"""What one step will run, what it gave, and why whoever was left out was left out.

A `StepPlan` is complete: an executor needs nothing else. It learns of a request when it enters (`Entry`), and may
forget it when its id is in `left`. Chunks are laid out back to back in the order of `chunks`.

A step touches KV memory in this order, which is what makes its block ids safe to use twice:

    1. swap_out   device -> host   a victim's block is read before anybody who took it over writes
    2. swap_in    host -> device   into blocks that their last holder is done with, 1 included
    3. chunks     attention reads what 2 brought, and writes the new keys and values

Within 1 and within 2 no block is written twice, and 2 reads no host block that 1 writes, so the copies of a list may
run in any order or all at once.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

from evenflow.core.block_pool import BlockId
from evenflow.core.request import FinishReason, Request, RequestId


class Chunk(NamedTuple):
    """Consecutive tokens of one request: positions `start` .. `start + len(token_ids) - 1`.

    `block_ids` is the request's whole block table; position p lives in slot `p % block_size` of block
    `block_ids[p // block_size]`. The same tuple object comes again until the table changes, so an executor may compare
    by identity. `samples`: the chunk reaches the last known token, so the executor must return a next token.
    (A NamedTuple because a step builds one per running request: 0.3 us against 1.1 us for a frozen dataclass.)
    """

    request_id: RequestId
    start: int
    token_ids: tuple[int, ...]
    block_ids: tuple[BlockId, ...]
    samples: bool


class Entry(NamedTuple):
    """A request that starts (or, after a preemption, starts again) to run in this step, with every token it has so far.

    The first `num_cached_tokens` of them are already in its blocks, the `num_swapped_in_tokens` after those come with
    the step's `swap_in`.
    """

    request: Request
    token_ids: tuple[int, ...]
    num_cached_tokens: int
    num_swapped_in_tokens: int = 0


class BlockCopy(NamedTuple):
    """One KV block, all layers, from one pool into the other."""

    source: BlockId
    target: BlockId


class WaitReason(Enum):
    """Why a request got no token in a step."""

    BUDGET = "budget"
    """The step's tokens go to those before it."""
    MAX_NUM_SEQS = "max_num_seqs"
    """Every seat is taken."""
    KV = "kv"
    """Everything known of it does not fit into free memory."""
    RESERVE = "reserve"
    """It would fit, but not with the output that the policy sets memory aside for."""
    PREEMPTION = "preemption"
    """Memory or seats were taken back in this step: nobody new comes in."""
    LONG_PROMPT = "long_prompt"
    """As many long prompts as may be are in progress, or their share of the step is used up."""
    QUOTA = "quota"
    """Its class has its maximum, or what is free is kept for other classes."""
    FAIRNESS = "fairness"
    """It is another tenant's turn, and that one does not fit."""
    PREFILL_SHARE = "prefill_share"
    """Prefills have their share of the step."""
    DECODE_SHARE = "decode_share"
    """Decodes have their share of the step: prefills come first."""
    STATIC_BATCH = "static_batch"
    """The batch that runs must end first."""


class LeftOut(NamedTuple):
    """A running request that got no token."""

    request_id: RequestId
    reason: WaitReason


EVERYBODY = "all"
"""A door of this name speaks for every flow that has none of its own."""


def lane_of(flow: str) -> str:
    """The lane that a flow is a part of: what its name begins with, up to the first slash."""
    return flow.partition("/")[0]


class Door(NamedTuple):
    """The head of a waiting queue that could not come in; everyone behind it waits for the same reason.

    `flow` names a flow, a lane (every flow of it) or everybody. Of the doors that speak for a request, the one of its
    flow counts, else its lane's, else everybody's. So a handful of doors explains any number of waiting requests.
    """

    flow: str
    head: RequestId
    reason: WaitReason


class StepPlan(NamedTuple):
    """`left` gave up their place since the last plan (finished, aborted or preempted); apply it before `entered`.

    A decode token is the one token of a request that has already given output; every other fed token is prefill.
    `attended_context_tokens` is summed over fed tokens: the number of positions each attends to, itself included;
    `decode_context_tokens` is the part of it that streams which are at their last
    known token attend to. (A NamedTuple as Chunk is: every step makes one, and a frozen dataclass takes 3 us longer.)
    """

    step: int
    chunks: tuple[Chunk, ...]
    token_budget: int
    num_prefill_tokens: int = 0
    num_decode_tokens: int = 0
    attended_context_tokens: int = 0
    decode_context_tokens: int = 0
    num_cached_tokens: int = 0
    entered: tuple[Entry, ...] = ()
    left: tuple[RequestId, ...] = ()
    preempted: tuple[RequestId, ...] = ()
    swap_out: tuple[BlockCopy, ...] = ()
    swap_in: tuple[BlockCopy, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    doors: tuple[Door, ...] = ()

    @property
    def num_tokens(self) -> int:
        return self.num_prefill_tokens + self.num_decode_tokens


class TokenLogprobs(NamedTuple):
    """Log-probabilities at one position: of the token itself, its rank (1 is most likely), and the likeliest tokens."""

    token_id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...]


_NOTHING_ASKED: Mapping[RequestId, Any] = MappingProxyType({})  # Any: of either kind of log-probabilities, none


class StepOutcome(NamedTuple):
    """The next token of every chunk with `samples`, in the order of the chunks, and the log-probabilities asked for.

    `prompt_logprobs[id]` has one entry per prompt token whose *next*-token distribution this chunk computed and that is
    itself a prompt token: for a chunk over positions a .. b-1, the entries of positions a+1 .. b (cut at the prompt).
    `swap_seconds` is the part of `device_seconds` that went into the step's block copies.
    """

    sampled: Mapping[RequestId, int]
    logprobs: Mapping[RequestId, TokenLogprobs] = _NOTHING_ASKED
    prompt_logprobs: Mapping[RequestId, tuple[TokenLogprobs, ...]] = _NOTHING_ASKED
    device_seconds: float = 0.0
    swap_seconds: float = 0.0


class RequestOutput(NamedTuple):
    """What one step gave one request. `finish_reason` is set on its last output, and only there.

    `stop_token_id` is the token that ended it (it is also in `token_ids`), None where a length or an abort did.
    `retry_after_seconds` comes with SHED only: when the same request would find room in the queue.
    """

    request_id: RequestId
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    logprobs: TokenLogprobs | None = None
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    num_cached_tokens: int = 0
    retry_after_seconds: float | None = None
