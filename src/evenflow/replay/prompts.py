"""What prompts are made of: token ids, or words that are one token each, chosen by a hash.

    token at position p of a prompt = pool[hash(seed, whose, p) mod size of the pool]

`whose` is the request itself, or the block of a shared prefix that the position lies in: requests that share a block id
share its tokens, and nothing else. As nothing is remembered, a prompt of any length is made when it is sent, all at
once: the pieces are of one width, padded with the blanks that JSON allows, so 100,000 tokens are one array of bytes.

The seed is a new one for every run unless asked otherwise. The same content twice would be answered from the server's
prefix cache the second time, and every comparison of two runs would be won by the later one.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from evenflow.core.errors import ConfigError
from evenflow.replay.request import PlannedRequest
from evenflow.workload.trace import PrefixBlocks

_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
# Streams of request contents and of block contents must not meet.
_OWN = 1 << 62


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's finaliser: every bit of the result depends on every bit of the value."""
    with np.errstate(over="ignore"):
        values = values + _MIX[0]
        values = (values ^ (values >> np.uint64(30))) * _MIX[1]
        values = (values ^ (values >> np.uint64(27))) * _MIX[2]
        return values ^ (values >> np.uint64(31))


def choices(seed: int, plan: PlannedRequest, size: int) -> NDArray[np.int64]:
    """An index below `size` for every token of the prompt."""
    owners, positions = _owners(plan.index, plan.num_prompt_tokens, plan.prefix)
    mixed = _mixed(_mixed(owners ^ _mixed(np.full(1, seed, dtype=np.uint64))) ^ positions)
    return (mixed % np.uint64(size)).astype(np.int64)


def _owners(index: int, num_tokens: int, prefix: PrefixBlocks | None) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Whose each token is, and its position there."""
    at = np.arange(num_tokens, dtype=np.uint64)
    if prefix is None:
        return np.full(num_tokens, _OWN + index, dtype=np.uint64), at
    ids = np.array(prefix.ids, dtype=np.int64).astype(np.uint64)
    block_tokens = np.uint64(prefix.block_tokens)
    return ids[(at // block_tokens).astype(np.int64)], at % block_tokens


class PromptMaker(Protocol):
    @property
    def form(self) -> str:
        """For people."""
        ...

    def prompt(self, plan: PlannedRequest) -> bytes: ...


class IdPrompts:
    """Prompts as arrays of token ids: exact by construction, whatever the tokenizer."""

    form = "token ids"

    def __init__(self, pool: Sequence[int], seed: int) -> None:
        if not pool:
            raise ConfigError("there are no ordinary token ids to make prompts of")
        width = len(str(max(pool))) + 1
        self._pieces = np.array([b"%*d," % (width - 1, token_id) for token_id in pool], dtype=f"S{width}")
        self._seed = seed

    def prompt(self, plan: PlannedRequest) -> bytes:
        chosen = choices(self._seed, plan, len(self._pieces))
        return b"[%b]" % self._pieces[chosen].tobytes()[:-1]


class WordPrompts:
    """Prompts as text, for servers that take no ids. `more_tokens` are those the server adds to every text."""

    form = "words of one token each"

    def __init__(self, pool: Sequence[str], seed: int, more_tokens: int = 0) -> None:
        if not pool:
            raise ConfigError("no word is a single token here; use a server that takes token ids, or a local tokenizer")
        self._words = np.array(pool, dtype=object)
        self._seed = seed
        self._more_tokens = more_tokens

    def adding(self, more_tokens: int) -> "WordPrompts":
        return WordPrompts(list(self._words), self._seed, more_tokens)

    def text(self, plan: PlannedRequest) -> str:
        words = self._words[choices(self._seed, plan, len(self._words))]
        return "".join(words[: max(1, plan.num_prompt_tokens - self._more_tokens)])

    def prompt(self, plan: PlannedRequest) -> bytes:
        return msgspec.json.encode(self.text(plan))


class GivenOr:
    """The text that the trace has; made to measure where it has none."""

    def __init__(self, others: PromptMaker) -> None:
        self._others = others
        self.form = f"the trace's own text, else {others.form}"

    def prompt(self, plan: PlannedRequest) -> bytes:
        return msgspec.json.encode(plan.text) if plan.text is not None else self._others.prompt(plan)
