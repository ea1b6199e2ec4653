"""Token ids to text, as they come: no broken characters, no text that a stop string will take back.

A token is bytes, and a character may take several tokens. An incremental UTF-8 decoder keeps an unfinished character to
itself; U+FFFD comes out only for bytes that no continuation can mend, or where generation ends inside a character. Each
token is decoded once, so a long output costs linear time (decoding ever longer windows of ids does not).

The output continues the prompt: joined to the prompt's text it is what the tokenizer gives for all ids together. So a
SentencePiece token keeps its leading space, unless the prompt has no text of its own and the tokenizer drops the first
space of a text.
"""

from codecs import getincrementaldecoder
from collections.abc import Sequence
from typing import Protocol

from evenflow.core.plan import RequestOutput
from evenflow.core.request import FinishReason, Request
from evenflow.engine.api import Delta, TextOptions
from evenflow.engine.stops import StopMatcher

_Utf8Decoder = getincrementaldecoder("utf-8")


class TokenText(Protocol):
    """What text needs of a tokenizer."""

    def token_bytes(self, token_id: int, /) -> bytes:
        """What the token adds in the middle of a text; nothing for an id that the tokenizer does not know."""
        ...

    def is_special(self, token_id: int, /) -> bool: ...

    def decode(self, token_ids: Sequence[int], /, *, skip_special_tokens: bool = True) -> str: ...


class Detokenizer:
    """The text of one sequence of tokens, each given once and in order."""

    __slots__ = ("_at_start", "_skip_special", "_tokenizer", "_utf8")

    def __init__(self, tokenizer: TokenText, prompt_token_ids: Sequence[int], *, skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special_tokens
        self._utf8 = _Utf8Decoder(errors="replace")
        self._at_start = skip_special_tokens and all(map(tokenizer.is_special, prompt_token_ids))

    def push(self, token_id: int) -> str:
        """The characters that this token completes."""
        if self._skip_special and self._tokenizer.is_special(token_id):
            return ""
        data = self._tokenizer.token_bytes(token_id)
        if self._at_start and data:
            self._at_start = False
            if data.startswith(b" ") and not self._tokenizer.decode([token_id]).startswith(" "):
                data = data[1:]
        return self._utf8.decode(data)

    def finish(self) -> str:
        """U+FFFD if the last character is unfinished."""
        return self._utf8.decode(b"", True)


class OutputText:
    """One completion: what the engine gives in each step, turned into what the client sees.

    Tokens and their log-probabilities come out in the step that gave them, text when it is certain. Tokens after the
    one that completes a stop string are dropped.
    """

    __slots__ = ("_detokenizer", "_num_tokens", "_options", "_request", "_stops", "finish_reason")

    def __init__(self, tokenizer: TokenText, request: Request, options: TextOptions) -> None:
        self._request = request
        self._options = options
        self._num_tokens = 0
        self._detokenizer = Detokenizer(
            tokenizer, request.prompt_token_ids, skip_special_tokens=options.skip_special_tokens
        )
        self._stops = StopMatcher(options.stop, include_stop_str_in_output=options.include_stop_str_in_output)
        self.finish_reason: FinishReason | None = None

    def advance(self, output: RequestOutput) -> Delta:
        """The next delta. If `finish_reason` is set after it and not in `output`, a stop string ended the text."""
        assert self.finish_reason is None
        text, num_used = self._decode(output)
        stop_reason: str | int | None = self._stops.matched
        if stop_reason is not None:
            self.finish_reason = FinishReason.STOP
        elif output.finish_reason is not None:
            self.finish_reason = output.finish_reason
            if output.stop_token_id in self._request.sampling.stop_token_ids:
                stop_reason = output.stop_token_id
        return Delta(
            text=text,
            token_ids=output.token_ids[:num_used],
            finish_reason=self.finish_reason,
            stop_reason=stop_reason,
            logprobs=(output.logprobs,) if output.logprobs is not None else (),
            prompt_logprobs=output.prompt_logprobs,
            num_cached_tokens=output.num_cached_tokens,
        )

    def _decode(self, output: RequestOutput) -> tuple[str, int]:
        """The text that may go out, and how many of the tokens made it."""
        spoken = len(output.token_ids)
        if output.stop_token_id is not None and not self._options.include_stop_str_in_output:
            spoken -= 1  # a stop token is an end, not a word
        pieces = []
        for index, token_id in enumerate(output.token_ids[:spoken]):
            pieces.append(self._push(self._detokenizer.push(token_id), 1))
            if self._stops.matched is not None:
                return "".join(pieces), index + 1
        self._num_tokens += len(output.token_ids) - spoken
        if output.finish_reason is not None:
            pieces.append(self._push(self._detokenizer.finish(), 0))
            pieces.append(self._stops.flush())
        return "".join(pieces), len(output.token_ids)

    def _push(self, text: str, num_tokens: int) -> str:
        self._num_tokens += num_tokens
        return self._stops.push(text, armed=self._num_tokens >= self._options.min_tokens)
