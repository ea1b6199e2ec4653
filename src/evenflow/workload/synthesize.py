"""Prompts of an exact number of tokens, for replaying lengths without their text. Same seed, same prompts."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from evenflow.core.errors import ConfigError
from evenflow.workload.words import WORDS

_MAX_TRIES = 100


class PromptTokenizer(Protocol):
    """What making prompts needs of a tokenizer."""

    @property
    def vocab_size(self) -> int: ...

    def encode(self, text: str, /, *, add_special_tokens: bool = ...) -> Sequence[int]: ...

    def decode(self, ids: Sequence[int], /, *, skip_special_tokens: bool = ...) -> str: ...

    def is_special(self, token_id: int, /) -> bool: ...


@dataclass(frozen=True, slots=True)
class Prompt:
    text: str
    token_ids: tuple[int, ...]


def prompt_of_length(rng: Random, tokenizer: PromptTokenizer, num_tokens: int) -> Prompt:
    """English-like text that encodes to exactly `num_tokens` tokens, so that a server which takes text sees as many."""
    assert num_tokens > 0
    for _ in range(_MAX_TRIES):
        words: list[str] = []
        token_ids: Sequence[int] = []
        while len(token_ids) < num_tokens:
            words += [rng.choice(WORDS) for _ in range(max(1, num_tokens - len(token_ids)))]
            token_ids = tokenizer.encode(" ".join(words), add_special_tokens=False)
        token_ids = list(token_ids[:num_tokens])
        text = tokenizer.decode(token_ids, skip_special_tokens=False)
        # A cut inside a word may read differently on the way back.
        if list(tokenizer.encode(text, add_special_tokens=False)) == token_ids:
            return Prompt(text, tuple(token_ids))
    raise ConfigError(
        f"no text of exactly {num_tokens} tokens was found for this tokenizer; send token ids instead of text"
    )


class RandomTokens:
    """Token ids at random, without special tokens: the cheapest prompts, for engines that take ids."""

    def __init__(self, tokenizer: PromptTokenizer) -> None:
        self._usable = [token_id for token_id in range(tokenizer.vocab_size) if not tokenizer.is_special(token_id)]
        if not self._usable:
            raise ConfigError("every token of this tokenizer is special; there is nothing to make prompts of")

    def prompt(self, rng: Random, num_tokens: int) -> tuple[int, ...]:
        return tuple(rng.choices(self._usable, k=num_tokens))
