"""The most characters of input that one token can stand for, if a tokenizer has such a bound.

It lets a server refuse a hopelessly long prompt without tokenising it: `n` characters give at least `n / bound` tokens.
The bound is the longest token, provided that nothing on the way drops characters: no normalizer that could shorten text
without a bound, no pre-tokenizer that removes any, no added token that swallows the spaces beside it, no unknown-token
that stands for a whole run. Composing normalizers make one character of at most four: a text has no more characters
than its canonical decomposition, and no character decomposes into more than four. Where nothing is certain, there is no
bound.
"""

import json
import math
from collections.abc import Mapping
from typing import Any  # what JSON may hold

import tokenizers

_MOST_COMPOSED = 4
_KEEPING_PRE_TOKENIZERS = frozenset({"ByteLevel", "Digits", "Metaspace", "Split"})


def max_chars_per_token(backend: tokenizers.Tokenizer, longest_token_bytes: int) -> int | None:
    added = backend.get_added_tokens_decoder().values()
    if any(token.lstrip or token.rstrip for token in added):
        return None
    merged = _most_merged(_state(backend.normalizer))
    if merged is None or not _pre_tokenizer_keeps(_state(backend.pre_tokenizer)):
        return None
    return longest_token_bytes * merged if _every_character_is_spelt(backend) else None


def _state(component: Any) -> Mapping[str, Any]:
    """A component's own description; empty where there is none."""
    return {} if component is None else json.loads(component.__getstate__())


def _most_merged(state: Mapping[str, Any]) -> int | None:
    """The most characters that a normalizer makes one of; None if that is not known."""
    match state:
        case {"type": "Sequence", "normalizers": list(steps)}:
            each = [_most_merged(step) for step in steps]
            return None if None in each else math.prod(filter(None, each))
        case {"type": "NFC" | "NFKC"}:
            return _MOST_COMPOSED
        case {"type": "Prepend" | "NFD" | "NFKD"}:
            return 1
        case {"type": "Replace", "pattern": {"String": str(pattern)}, "content": str(content)}:
            return 1 if len(content) >= len(pattern) else None
        case _:
            return None if state else 1


def _pre_tokenizer_keeps(state: Mapping[str, Any]) -> bool:
    match state:
        case {"type": "Sequence", "pretokenizers": list(parts)}:
            return all(map(_pre_tokenizer_keeps, parts))
        case {"type": str(kind)}:
            return kind in _KEEPING_PRE_TOKENIZERS and state.get("behavior") != "Removed"
        case _:
            return not state


def _every_character_is_spelt(backend: tokenizers.Tokenizer) -> bool:
    """By bytes, one way or the other; an unknown-token could fuse a whole run of characters into one."""
    byte_level = '"ByteLevel"' in json.dumps(_state(backend.pre_tokenizer))
    return byte_level or bool(getattr(backend.model, "byte_fallback", False))
