"""Log-probabilities as the two endpoints show them: parallel lists for completions, a list of objects for chat."""

import codecs
from collections.abc import Iterable, Sequence

from evenflow.core.plan import TokenLogprobs
from evenflow.server.encoding import Tokenizer
from evenflow.server.replies import ChatLogprob, ChatLogprobs, CompletionLogprobs, TopLogprob

# JSON has no minus infinity; OpenAI writes this for tokens that cannot come.
LEAST_LOGPROB = -9999.0


def finite(logprob: float) -> float:
    return max(logprob, LEAST_LOGPROB)


class OffsetLogprobs:
    """Log-probabilities of one choice of a completion, across its deltas.

    `text_offset` is where a token's text begins in the text of the choice. Characters are counted as they complete: a
    token that ends inside a character ends where that character begins.
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset = 0

    def prompt(self, token_ids: Sequence[int], text: str, entries: Sequence[TokenLogprobs]) -> CompletionLogprobs:
        """Of an echoed prompt; `entries` are those of all its tokens but the first, which has no probability."""
        into = no_logprobs()
        for token_id, entry in zip(token_ids, (None, *entries), strict=False):
            # Special tokens that the tokenizer added are not in the text; those that the client wrote are.
            shown = text.startswith(self._text(token_id), self._offset) or not self._tokenizer.is_special(token_id)
            self._add(into, token_id, entry, shown=shown)
        return into

    def output(self, entries: Iterable[TokenLogprobs]) -> CompletionLogprobs:
        into = no_logprobs()
        for entry in entries:
            shown = not (self._skip_special_tokens and self._tokenizer.is_special(entry.token_id))
            self._add(into, entry.token_id, entry, shown=shown)
        return into

    def _add(self, into: CompletionLogprobs, token_id: int, entry: TokenLogprobs | None, *, shown: bool) -> None:
        into.tokens.append(self._text(token_id))
        into.token_logprobs.append(None if entry is None else finite(entry.logprob))
        into.top_logprobs.append(None if entry is None else self._top(entry))
        into.text_offset.append(self._offset)
        if shown:
            self._offset += len(self._decoder.decode(self._tokenizer.token_bytes(token_id)))

    def _top(self, entry: TokenLogprobs) -> dict[str, float]:
        """The likeliest tokens and the token itself. Of tokens that read the same, the likelier is shown."""
        top: dict[str, float] = {}
        for token_id, logprob in (*entry.top, (entry.token_id, entry.logprob)):
            top.setdefault(self._text(token_id), finite(logprob))
        return top

    def _text(self, token_id: int) -> str:
        return self._tokenizer.token_text(token_id)


def no_logprobs() -> CompletionLogprobs:
    return CompletionLogprobs(tokens=[], token_logprobs=[], top_logprobs=[], text_offset=[])


def joined(first: CompletionLogprobs, second: CompletionLogprobs) -> CompletionLogprobs:
    return CompletionLogprobs(
        tokens=first.tokens + second.tokens,
        token_logprobs=first.token_logprobs + second.token_logprobs,
        top_logprobs=first.top_logprobs + second.top_logprobs,
        text_offset=first.text_offset + second.text_offset,
    )


def chat_logprobs(tokenizer: Tokenizer, entries: Iterable[TokenLogprobs]) -> ChatLogprobs:
    return ChatLogprobs(content=[_chat_logprob(tokenizer, entry) for entry in entries])


def _chat_logprob(tokenizer: Tokenizer, entry: TokenLogprobs) -> ChatLogprob:
    return ChatLogprob(
        token=tokenizer.token_text(entry.token_id),
        logprob=finite(entry.logprob),
        bytes=list(tokenizer.token_bytes(entry.token_id)),
        top_logprobs=[
            TopLogprob(
                token=tokenizer.token_text(token_id),
                logprob=finite(logprob),
                bytes=list(tokenizer.token_bytes(token_id)),
            )
            for token_id, logprob in entry.top
        ],
    )
