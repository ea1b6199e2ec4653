"""The most characters of input that one token can stand for, if a tokenizer has such a bound.

It lets a server refuse a hopelessly long prompt without tokenising it: `n` characters give at least `n / bound` tokens.
The bound is the longest token, provided that nothing on the way drops or merges characters: no normalizer that could
shorten text, no pre-tokenizer that removes any, no added token that swallows the spaces beside it, no unknown-token
that stands for a whole run. Where that is not certain, there is no bound.
"""

import json
from collections.abc import Mapping
from typing import Any  # what JSON may hold

import tokenizers

_KEEPING_PRE_TOKENIZERS = frozenset({"ByteLevel", "Digits", "Metaspace", "Split"})


def max_chars_per_token(backend: tokenizers.Tokenizer, longest_token_bytes: int) -> int | None:
    added = backend.get_added_tokens_decoder().values()
    if any(token.lstrip or token.rstrip for token in added):
        return None
    keeps = _normalizer_keeps(_state(backend.normalizer)) and _pre_tokenizer_keeps(_state(backend.pre_tokenizer))
    return longest_token_bytes if keeps and _every_character_is_spelt(backend) else None


def _state(component: Any) -> Mapping[str, Any]:
    """A component's own description; empty where there is none."""
    return {} if component is None else json.loads(component.__getstate__())


def _normalizer_keeps(state: Mapping[str, Any]) -> bool:
    match state:
        case {"type": "Sequence", "normalizers": list(parts)}:
            return all(map(_normalizer_keeps, parts))
        case {"type": "Prepend"}:
            return True
        case {"type": "Replace", "pattern": {"String": str(pattern)}, "content": str(content)}:
            return len(content) >= len(pattern)
        case _:
            return not state


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
