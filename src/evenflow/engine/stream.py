"""One open stream: what the engine gave and its reader has not taken yet.

The writer never waits. A reader that is slow, or never comes, holds up nobody: what has gathered is handed over as one
delta.
"""

import asyncio
from collections.abc import Sequence

from evenflow.core.errors import DeadlineTooSoon, QueueFull, RequestError
from evenflow.core.plan import RequestOutput
from evenflow.core.request import FinishReason, Request, RequestId
from evenflow.engine.api import Delta, TextOptions
from evenflow.engine.text import OutputText, TokenText


def merge(deltas: Sequence[Delta]) -> Delta:
    """Consecutive deltas of one completion (at least one) as one."""
    if len(deltas) == 1:
        return deltas[0]
    last = deltas[-1]
    return Delta(
        text="".join([delta.text for delta in deltas]),
        token_ids=tuple([token_id for delta in deltas for token_id in delta.token_ids]),
        finish_reason=last.finish_reason,
        stop_reason=last.stop_reason,
        logprobs=tuple([entry for delta in deltas for entry in delta.logprobs]),
        prompt_logprobs=tuple([entry for delta in deltas for entry in delta.prompt_logprobs]),
        num_cached_tokens=max(delta.num_cached_tokens for delta in deltas),
    )


def _refusal(output: RequestOutput) -> RequestError | None:
    """What became of a request that was queued and then never run, as an error: it has no text to end."""
    match output.finish_reason:
        case FinishReason.SHED:
            wait = output.retry_after_seconds or 1.0
            return QueueFull(
                f"the queue is full, and a request of a better class took the place; try again in about {wait:.3g} s",
                retry_after_seconds=wait,
            )
        case FinishReason.EXPIRED:
            return DeadlineTooSoon(
                "the deadline passed while the request waited, so it did not run", param="ttft_deadline_ms"
            )
        case _:
            return None


class Stream:
    __slots__ = ("_deltas", "_end", "_error", "_news", "_text", "request_id")

    def __init__(self, tokenizer: TokenText, request: Request, options: TextOptions) -> None:
        self.request_id: RequestId = request.id
        self._text = OutputText(tokenizer, request, options)
        self._deltas: list[Delta] = []
        self._error: Exception | None = None
        self._news = asyncio.Event()
        self._end = asyncio.Event()

    def advance(self, output: RequestOutput) -> FinishReason | None:
        """Take in what a step gave. Returns why the stream has ended, if it has: the engine may not know yet."""
        refused = _refusal(output)
        if refused is not None:
            self.fail(refused)
            return output.finish_reason
        try:
            delta = self._text.advance(output)
        except Exception as error:  # whatever a tokenizer may raise is the trouble of one stream, not of all
            self.fail(error)
            return FinishReason.ERROR
        self._deltas.append(delta)
        self._news.set()
        if delta.finish_reason is not None:
            self._end.set()
        return delta.finish_reason

    def fail(self, error: Exception) -> None:
        """The reader gets what has gathered, then the error."""
        self._error = error
        self._news.set()
        self._end.set()

    async def read(self) -> Delta:
        """All that has gathered, as soon as there is something."""
        await self._news.wait()
        return self._take()

    async def read_all(self) -> Delta:
        """The whole completion, once it has ended."""
        await self._end.wait()
        if self._error is not None:
            raise self._error
        return self._take()

    def _take(self) -> Delta:
        if not self._deltas:
            assert self._error is not None
            raise self._error
        delta = merge(self._deltas)
        self._deltas.clear()
        if self._error is None:
            self._news.clear()
        return delta
