"""A tokenizer small enough to see through: a token is two characters, or one at the end of a text."""

from collections.abc import Sequence

ALPHABET = "abcdefghijklmnopqrstuvwxyz "
_PAIRS = [a + b for a in ALPHABET for b in ALPHABET]
_TOKENS = ["<s>", "</s>", *_PAIRS, *ALPHABET]
_IDS = {token: index for index, token in enumerate(_TOKENS)}


class PairTokenizer:
    vocab_size = len(_TOKENS)

    def encode(self, text: str, /, *, add_special_tokens: bool = True) -> list[int]:
        pairs = [_IDS[text[i : i + 2]] for i in range(0, len(text), 2)]
        return [0, *pairs] if add_special_tokens else pairs

    def decode(self, ids: Sequence[int], /, *, skip_special_tokens: bool = True) -> str:
        return "".join(_TOKENS[i] for i in ids if not (skip_special_tokens and self.is_special(i)))

    def is_special(self, token_id: int, /) -> bool:
        return token_id < 2
