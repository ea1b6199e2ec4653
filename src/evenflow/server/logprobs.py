"""Log-probabilities as the two endpoints show them: parallel lists for completions, a list of objects for chat.

A token is shown as the text of its bytes, not as the vocabulary spells it; bytes that are no character alone show as
U+FFFD, and chat gives the bytes too.
"""

import codecs
from collections.abc import Callable, Iterable
from functools import lru_cache

from evenflow.core.plan import TokenLogprobs
from evenflow.server.encoding import Tokenizer
from evenflow.server.replies import ChatLogprob, ChatLogprobs, CompletionLogprobs, TopLogprob

# JSON has no minus infinity; OpenAI writes this for tokens that cannot come.
LEAST_LOGPROB = -9999.0

# Of an echoed prompt of 8,000 tokens with 20 alternatives each, 170,000 texts are needed; few of them differ.
TEXTS_KEPT = 16_384

TokenTexts = Callable[[int], str]


def token_texts(tokenizer: Tokenizer) -> TokenTexts:
    """The text of a token alone."""

    @lru_cache(TEXTS_KEPT)
    def text(token_id: int) -> str:
        return tokenizer.token_bytes(token_id).decode("utf-8", "replace")

    return text


def finite(logprob: float) -> float:
    return max(logprob, LEAST_LOGPROB)


def no_logprobs() -> CompletionLogprobs:
    return CompletionLogprobs(tokens=[], token_logprobs=[], top_logprobs=[], text_offset=[])


class OffsetLogprobs:
    """Log-probabilities of one choice of a completion, across its deltas.

    `text_offset` is where a token's text begins in the text of the choice. Characters are counted as they complete: a
    token that ends inside a character ends where that character begins.
    """

    def __init__(self, tokenizer: Tokenizer, texts: TokenTexts, *, skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._text = texts
        self._skip_special_tokens = skip_special_tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset = 0

    def first_of_prompt(self, into: CompletionLogprobs, token_id: int, prompt: str) -> None:
        """The first token of a prompt follows nothing, so it has no probability."""
        self._add(into, token_id, None, None, shown=self._shown_in(prompt, token_id))

    def rest_of_prompt(self, into: CompletionLogprobs, entries: Iterable[TokenLogprobs], prompt: str) -> None:
        for entry in entries:
            shown = self._shown_in(prompt, entry.token_id)
            self._add(into, entry.token_id, entry.logprob, self._top(entry), shown=shown)

    def output(self, into: CompletionLogprobs, entries: Iterable[TokenLogprobs]) -> None:
        for entry in entries:
            shown = not (self._skip_special_tokens and self._tokenizer.is_special(entry.token_id))
            self._add(into, entry.token_id, entry.logprob, self._top(entry), shown=shown)

    def _shown_in(self, prompt: str, token_id: int) -> bool:
        """Special tokens that the tokenizer added are not in the prompt's text; those that the client wrote are."""
        return not self._tokenizer.is_special(token_id) or prompt.startswith(self._text(token_id), self._offset)

    def _add(
        self,
        into: CompletionLogprobs,
        token_id: int,
        logprob: float | None,
        top: dict[str, float] | None,
        *,
        shown: bool,
    ) -> None:
        into.tokens.append(self._text(token_id))
        into.token_logprobs.append(None if logprob is None else finite(logprob))
        into.top_logprobs.append(top)
        into.text_offset.append(self._offset)
        if shown:
            self._offset += len(self._decoder.decode(self._tokenizer.token_bytes(token_id)))

    def _top(self, entry: TokenLogprobs) -> dict[str, float]:
        """The likeliest tokens and the token itself. Of tokens that read the same, the likelier is shown."""
        top: dict[str, float] = {}
        for token_id, logprob in (*entry.top, (entry.token_id, entry.logprob)):
            top.setdefault(self._text(token_id), finite(logprob))
        return top


def chat_logprobs(tokenizer: Tokenizer, texts: TokenTexts, entries: Iterable[TokenLogprobs]) -> ChatLogprobs:
    return ChatLogprobs(content=[_chat_logprob(tokenizer, texts, entry) for entry in entries])


def _chat_logprob(tokenizer: Tokenizer, texts: TokenTexts, entry: TokenLogprobs) -> ChatLogprob:
    return ChatLogprob(
        token=texts(entry.token_id),
        logprob=finite(entry.logprob),
        bytes=list(tokenizer.token_bytes(entry.token_id)),
        top_logprobs=[
            TopLogprob(token=texts(token_id), logprob=finite(logprob), bytes=list(tokenizer.token_bytes(token_id)))
            for token_id, logprob in entry.top
        ],
    )
