"""The content of simulated prompts: none, except that what is shared in the trace is shared here.

Nobody reads a simulated prompt; only its blocks' hashes matter, to the prefix cache. A request whose trace says nothing
of its content shares it with nobody: its prompt is a mere length, under a salt of its own (core/content.py). One that
says which blocks it is made of has at every position the number of the block that the position lies in, so that equal
prefixes, and no others, are equal.

    block_tokens 4, ids (7, 7, 2), 10 tokens:   7 7 7 7  7 7 7 7  2 2
"""

from array import array
from typing import cast

from evenflow.core.errors import ConfigError
from evenflow.core.request import DEFAULT_CLASS, DEFAULT_TENANT, Request, RequestId, SamplingParams
from evenflow.replay.request import PlannedRequest
from evenflow.simulate.config import VOCAB_SIZE
from evenflow.workload.trace import PrefixBlocks


class RequestMaker:
    """Makes requests when they arrive: until then a trace is all that is held."""

    def __init__(self) -> None:
        # Few lengths, many requests.
        self._sampling: dict[int, SamplingParams] = {}

    def request(self, plan: PlannedRequest, arrival_time: float) -> Request:
        sampling = self._sampling.get(plan.max_tokens)
        if sampling is None:
            sampling = SamplingParams(max_tokens=plan.max_tokens, temperature=0.0, ignore_eos=True)
            self._sampling[plan.max_tokens] = sampling
        prefix = plan.prefix
        # The core asks for its length and for pieces of it, and either gives both.
        tokens = range(plan.num_prompt_tokens) if prefix is None else _tokens(plan, prefix)
        return Request(
            id=RequestId(plan.request_id),
            prompt_token_ids=cast("tuple[int, ...]", tokens),
            sampling=sampling,
            arrival_time=arrival_time,
            cache_salt=plan.request_id if prefix is None else "",
            tenant=plan.tenant if plan.tenant is not None else DEFAULT_TENANT,
            service_class=plan.service_class if plan.service_class is not None else DEFAULT_CLASS,
        )


def _tokens(plan: PlannedRequest, prefix: PrefixBlocks) -> "array[int]":
    if not prefix.covers(plan.num_prompt_tokens):
        raise ConfigError(
            f"{plan.request_id}: {len(prefix.ids)} blocks of {prefix.block_tokens} tokens do not make a prompt of "
            f"{plan.num_prompt_tokens}"
        )
    if min(prefix.ids) < 0 or max(prefix.ids) >= VOCAB_SIZE:
        raise ConfigError(f"{plan.request_id}: block ids must be between 0 and {VOCAB_SIZE - 1}")
    tokens = array("q")
    for block_id in prefix.ids:
        tokens.extend(array("q", (block_id,)) * prefix.block_tokens)
    del tokens[plan.num_prompt_tokens :]
    return tokens
