"""An engine for ordinary (not async) Python: prompts in, completions out, and the caller waits.

The event loop of the streams runs in a thread of its own and the caller waits in his. So several threads may share one
engine, and their requests run in one batch; and an interrupt (Ctrl-C) of one frees what he leaves behind.
"""

import asyncio
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol, Self

from evenflow.core.errors import EngineUnavailable, InvalidRequest
from evenflow.core.events import Event
from evenflow.core.plan import TokenLogprobs
from evenflow.core.request import FinishReason, Request, RequestId, SamplingParams
from evenflow.engine.api import Delta, EngineFacts, TextOptions
from evenflow.engine.arguments import (
    Message,
    Prompt,
    check_token_ids,
    conversations_of,
    prompt_of,
    prompts_of,
    sampling_of,
    samplings_of,
    text_options,
)
from evenflow.engine.client import EngineClient, Link
from evenflow.engine.loop_thread import LoopThread
from evenflow.engine.text import TokenText


class ChatTemplate(Protocol):
    def render(self, messages: Sequence[Message], /, *, add_generation_prompt: bool) -> str: ...


class Tokenizer(TokenText, Protocol):
    @property
    def eos_token_ids(self) -> tuple[int, ...]: ...

    @property
    def chat_template(self) -> ChatTemplate | None: ...

    def encode(self, text: str, /, *, add_special_tokens: bool = True) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class Completion:
    """`prompt` is the text of the prompt, if it was given as text. `logprobs` has one entry per token, if asked for."""

    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    stop_reason: str | int | None
    logprobs: tuple[TokenLogprobs, ...]
    prompt_logprobs: tuple[TokenLogprobs, ...]
    num_cached_tokens: int


class OfflineEngine:
    """An engine at the other end of `link`, for callers that wait."""

    def __init__(self, link: Link, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._numbers = itertools.count()
        self._closed = False
        self._loop = LoopThread()
        self._client = EngineClient(link, tokenizer)
        try:
            self._loop.call(self._client.start())
        except BaseException:
            self.close()
            raise

    @property
    def facts(self) -> EngineFacts:
        """What the engine resolved at start."""
        return self._client.facts

    @property
    def tokenizer(self) -> Tokenizer:
        return self._tokenizer

    def subscribe(self, sink: Callable[[Sequence[Event]], None]) -> None:
        """Call `sink` with each step's events, in the thread of the streams; it must be quick."""
        self._client.subscribe(sink)

    # ---- asking ----------------------------------------------------------------------------------------------------

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        stop: str | Sequence[str] = (),
        text: TextOptions | None = None,
    ) -> list[Completion]:
        """One completion per prompt (text, or token ids), in order. `sampling` is for all, or one for each.

        Raises the first RequestError, if a prompt is refused; the others are then aborted.
        """
        self._check_open()
        options, each = text_options(stop, text), prompts_of(prompts)
        params = samplings_of(sampling, len(each))
        return self._complete([self._encode(prompt) for prompt in each], params, options)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        stop: str | Sequence[str] = (),
        text: TextOptions | None = None,
    ) -> list[Completion]:
        """As `generate`, for one conversation or several: each a list of {"role": ..., "content": ...}."""
        self._check_open()
        options, each = text_options(stop, text), conversations_of(messages)
        params = samplings_of(sampling, len(each))
        return self._complete([self._render(conversation) for conversation in each], params, options)

    def stream(
        self,
        prompt: Prompt,
        sampling: SamplingParams | None = None,
        *,
        stop: str | Sequence[str] = (),
        text: TextOptions | None = None,
    ) -> Iterator[Delta]:
        """The completion of one prompt as it comes. Leaving the iterator early aborts the request."""
        self._check_open()
        options, params = text_options(stop, text), sampling_of(sampling)
        request = self._request(self._encode(prompt_of(prompt)).token_ids, params)
        return self._deltas(request, replace(options, min_tokens=params.min_tokens))

    def _deltas(self, request: Request, options: TextOptions) -> Iterator[Delta]:
        deltas = self._client.generate(request, options)

        async def next_delta() -> Delta:
            return await anext(deltas)

        leaving = False
        while not leaving:
            delta = self._loop.call(next_delta())  # interrupted here, the stream ends itself
            leaving = True
            try:
                yield delta
                leaving = delta.finish_reason is not None
            finally:
                if leaving:
                    with suppress(EngineUnavailable):  # closed meanwhile: nothing is left to abort
                        self._loop.call(deltas.aclose())

    # ---- life ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the engine and what it runs. May be called again."""
        if not self._closed:
            self._closed = True
            self._loop.end_after(self._client.stop())
        self._loop.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Without waiting: the collector may run in any thread, also in the ones that would be waited for.
        if not sys.is_finalizing() and not getattr(self, "_closed", True):
            self._closed = True
            self._loop.end_after(self._client.stop())

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise EngineUnavailable("the engine was closed")

    def _encode(self, prompt: str | tuple[int, ...]) -> "_Prompt":
        if isinstance(prompt, str):
            return _Prompt(prompt, self._tokens(prompt, "prompt"))
        check_token_ids(prompt, self.facts.vocab_size, "prompt")
        return _Prompt(None, prompt)

    def _tokens(self, text: str, param: str, *, add_special_tokens: bool = True) -> tuple[int, ...]:
        try:
            return tuple(self._tokenizer.encode(text, add_special_tokens=add_special_tokens))
        except InvalidRequest as error:
            raise InvalidRequest(f"{param}: {error.message}", param=param) from error

    def _render(self, messages: Sequence[Message]) -> "_Prompt":
        template = self._tokenizer.chat_template
        if template is None:
            raise InvalidRequest("the model has no chat template; use generate() with a prompt", param="messages")
        prompt = template.render(messages, add_generation_prompt=True)
        return _Prompt(prompt, self._tokens(prompt, "messages", add_special_tokens=False))

    def _request(self, token_ids: tuple[int, ...], sampling: SamplingParams) -> Request:
        vocab_size = self.facts.vocab_size
        check_token_ids(sampling.stop_token_ids, vocab_size, "stop_token_ids")
        check_token_ids([token_id for token_id, _ in sampling.logit_bias], vocab_size, "logit_bias")
        return Request(
            id=RequestId(f"llm-{next(self._numbers)}"),
            prompt_token_ids=token_ids,
            sampling=sampling,
            arrival_time=time.monotonic(),
            eos_token_ids=self._tokenizer.eos_token_ids,
        )

    def _complete(
        self,
        prompts: Sequence["_Prompt"],
        sampling: Sequence[SamplingParams],
        options: TextOptions,
    ) -> list[Completion]:
        requests = [self._request(prompt.token_ids, params) for prompt, params in zip(prompts, sampling, strict=True)]
        deltas = self._loop.call(self._run_all(requests, options))
        return [_completion(prompt, delta) for prompt, delta in zip(prompts, deltas, strict=True)]

    async def _run_all(self, requests: Sequence[Request], options: TextOptions) -> list[Delta]:
        tasks: list[asyncio.Task[Delta]] = []
        try:
            async with asyncio.TaskGroup() as group:
                for request in requests:
                    own = replace(options, min_tokens=request.sampling.min_tokens)
                    tasks.append(group.create_task(self._client.complete(request, own)))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [task.result() for task in tasks]


@dataclass(frozen=True, slots=True)
class _Prompt:
    text: str | None
    token_ids: tuple[int, ...]


def _completion(prompt: _Prompt, whole: Delta) -> Completion:
    assert whole.finish_reason is not None
    return Completion(
        prompt=prompt.text,
        prompt_token_ids=prompt.token_ids,
        text=whole.text,
        token_ids=whole.token_ids,
        finish_reason=whole.finish_reason,
        stop_reason=whole.stop_reason,
        logprobs=whole.logprobs,
        prompt_logprobs=whole.prompt_logprobs,
        num_cached_tokens=whole.num_cached_tokens,
    )
