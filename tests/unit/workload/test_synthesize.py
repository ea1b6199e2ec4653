"""Prompts made to measure."""

from collections.abc import Sequence
from random import Random

import pytest

from evenflow.core.errors import ConfigError
from evenflow.workload.synthesize import RandomTokens, prompt_of_length
from pair_tokenizer import PairTokenizer


class ForgetfulTokenizer(PairTokenizer):
    """Nothing reads back as it was."""

    def decode(self, ids: Sequence[int], /, *, skip_special_tokens: bool = True) -> str:
        return super().decode(ids, skip_special_tokens=skip_special_tokens) + " and more"


class SpecialTokenizer(PairTokenizer):
    def is_special(self, token_id: int, /) -> bool:
        return True


@pytest.mark.parametrize("length", [1, 2, 3, 17, 500])
def test_a_prompt_has_exactly_the_tokens_asked_for_as_ids_and_as_text(length: int) -> None:
    tokenizer = PairTokenizer()
    prompt = prompt_of_length(Random(0), tokenizer, length)
    assert len(prompt.token_ids) == length
    assert tuple(tokenizer.encode(prompt.text, add_special_tokens=False)) == prompt.token_ids


def test_the_seed_decides_the_prompt() -> None:
    tokenizer = PairTokenizer()
    first, again, other = (prompt_of_length(Random(seed), tokenizer, 40) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_tokenizer_whose_text_never_reads_back_is_an_error_not_an_endless_search() -> None:
    with pytest.raises(ConfigError, match="no text of exactly 5 tokens was found"):
        prompt_of_length(Random(0), ForgetfulTokenizer(), 5)


def test_random_tokens_are_valid_and_never_special() -> None:
    tokens = RandomTokens(PairTokenizer()).prompt(Random(0), 5_000)
    assert len(tokens) == 5_000
    assert min(tokens) == 2
    assert max(tokens) == PairTokenizer.vocab_size - 1
    assert tokens == RandomTokens(PairTokenizer()).prompt(Random(0), 5_000)


def test_a_vocabulary_of_special_tokens_only_makes_no_prompts() -> None:
    with pytest.raises(ConfigError, match="every token of this tokenizer is special"):
        RandomTokens(SpecialTokenizer())
