"""What an engine process holds in memory beside what it must: its weights and its KV cache.

    loaded    the model is there, the KV cache untouched    at most 1.3 x weights + 250 MB
    filled    every block of the KV cache written once      at most 1.3 x (weights + KV cache) + 250 MB

So nothing that loading needed may stay: not the file, not the tensors before they were packed.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random

from evenflow.core.errors import EngineUnavailable
from evenflow.core.request import Request, RequestId, SamplingParams
from evenflow.engine.api import TextOptions
from evenflow.engine.child import ProcessLink
from evenflow.engine.client import EngineClient
from evenflow.engine.config import EngineConfig
from evenflow.engine.memory import resident_memory
from evenflow.engine.text import TokenText

LIMIT_FACTOR = 1.3
LIMIT_BYTES = 250 * 10**6
DEFAULT_KV_MEMORY = "256MiB"
_LONGEST_PROMPT = 1024


@dataclass(frozen=True, slots=True)
class MemoryCost:
    """Bytes of the engine process."""

    settings: dict[str, str]
    weights: int
    kv_cache: int
    kv_tokens: int
    loaded: int
    loaded_limit: int
    filled: int
    filled_limit: int


def measure(
    config: EngineConfig, tokenizer: TokenText, *, progress: Callable[[str], None] = lambda what: None
) -> MemoryCost:
    """A KV cache of DEFAULT_KV_MEMORY where `config` names no size: all of it is going to be filled."""
    config = replace(config, kv_memory=config.kv_memory or DEFAULT_KV_MEMORY, prefix_caching=True)
    return asyncio.run(_measure(config, tokenizer, progress))


async def _measure(config: EngineConfig, tokenizer: TokenText, progress: Callable[[str], None]) -> MemoryCost:
    link = ProcessLink(config)
    engine = EngineClient(link, tokenizer)
    progress("loading the model")
    try:
        await engine.start()
        facts = engine.facts
        uses = {use.name: use.num_bytes for use in facts.memory}
        loaded = _resident(link.pid)
        progress("filling the KV cache")
        kv_tokens = facts.num_kv_blocks * facts.block_size
        for request in _prompts(kv_tokens, facts.vocab_size, min(_LONGEST_PROMPT, facts.max_model_len - 1)):
            await engine.complete(request, TextOptions())
        weights, kv_cache = uses["weights"], uses["KV cache"]
        return MemoryCost(
            settings=dict(facts.settings),
            weights=weights,
            kv_cache=kv_cache,
            kv_tokens=kv_tokens,
            loaded=loaded,
            loaded_limit=int(LIMIT_FACTOR * weights) + LIMIT_BYTES,
            filled=_resident(link.pid),
            filled_limit=int(LIMIT_FACTOR * (weights + kv_cache)) + LIMIT_BYTES,
        )
    finally:
        await engine.stop()


def _prompts(num_tokens: int, vocab_size: int, length: int) -> Iterator[Request]:
    """As many tokens of prompts as the cache holds. They stay in it, so that no block is used twice."""
    rng = Random(0)
    for start in range(0, num_tokens, length):
        prompt = tuple(rng.choices(range(vocab_size), k=min(length, num_tokens - start)))
        sampling = SamplingParams(max_tokens=1, temperature=0.0)
        yield Request(RequestId(f"fill-{start}"), prompt, sampling, arrival_time=0.0)


def _resident(pid: int) -> int:
    resident = resident_memory(pid)
    if resident is None:
        raise EngineUnavailable("the operating system does not tell how much memory the engine has")
    return resident
