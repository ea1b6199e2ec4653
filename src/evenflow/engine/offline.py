"""An engine for ordinary (not async) Python: prompts in, completions out, and the caller waits.

The event loop of the streams runs in a thread of its own and the caller waits in his. So several threads may share one
engine, and their requests run in one batch; and an interrupt (Ctrl-C) of one frees what he leaves behind.
"""

import asyncio
import itertools
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, TypeVar

from evenflow.core.errors import EngineUnavailable, InvalidRequest
from evenflow.core.events import Event
from evenflow.core.plan import TokenLogprobs
from evenflow.core.request import FinishReason, Request, RequestId, SamplingParams
from evenflow.engine.api import Delta, EngineFacts, TextOptions
from evenflow.engine.client import EngineClient, Link
from evenflow.engine.text import TokenText

T = TypeVar("T")
Prompt = str | Sequence[int]
Message = Mapping[str, object]


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


class _LoopThread:
    """An event loop that runs in a daemon thread until it is ended."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._live, name="evenflow-streams", daemon=True)
        self._thread.start()

    def _live(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._until_ended())

    async def _until_ended(self) -> None:
        await self._ended.wait()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Its result, or what it raised. If the caller is interrupted, so is the coroutine."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def end_after(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Returns at once."""

        async def last() -> None:
            try:
                await coroutine
            finally:
                self._ended.set()

        asyncio.run_coroutine_threadsafe(last(), self._loop)

    def join(self) -> None:
        self._thread.join()


class OfflineEngine:
    """An engine at the other end of `link`, for callers that wait."""

    def __init__(self, link: Link, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._numbers = itertools.count()
        self._closed = False
        self._loop = _LoopThread()
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
        each = _as_list(prompts)
        return self._complete([self._encode(prompt) for prompt in each], sampling, _text_options(stop, text))

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
        each = [messages] if messages and isinstance(messages[0], Mapping) else messages
        prompts = [self._render(conversation) for conversation in each]  # type: ignore[arg-type] # the line above
        return self._complete(prompts, sampling, _text_options(stop, text))

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
        request = self._request(self._encode(prompt).token_ids, sampling or SamplingParams())
        options = replace(_text_options(stop, text), min_tokens=request.sampling.min_tokens)
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

    def _encode(self, prompt: Prompt) -> "_Prompt":
        if isinstance(prompt, str):
            return _Prompt(prompt, tuple(self._tokenizer.encode(prompt)))
        return _Prompt(None, tuple(prompt))

    def _render(self, messages: Sequence[Message]) -> "_Prompt":
        template = self._tokenizer.chat_template
        if template is None:
            raise InvalidRequest("the model has no chat template; use generate() with a prompt", param="messages")
        prompt = template.render(messages, add_generation_prompt=True)
        return _Prompt(prompt, tuple(self._tokenizer.encode(prompt, add_special_tokens=False)))

    def _request(self, token_ids: tuple[int, ...], sampling: SamplingParams) -> Request:
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
        sampling: SamplingParams | Sequence[SamplingParams] | None,
        options: TextOptions,
    ) -> list[Completion]:
        each = [sampling or SamplingParams()] * len(prompts) if not isinstance(sampling, Sequence) else sampling
        if len(each) != len(prompts):
            raise InvalidRequest(f"{len(prompts)} prompts but {len(each)} sampling parameters", param="sampling")
        requests = [self._request(prompt.token_ids, params) for prompt, params in zip(prompts, each, strict=True)]
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


def _as_list(prompts: Prompt | Sequence[Prompt]) -> Sequence[Prompt]:
    if isinstance(prompts, str) or (prompts and isinstance(prompts[0], int)):
        return [prompts]  # type: ignore[list-item] # one prompt, as text or as token ids
    return prompts  # type: ignore[return-value]


def _text_options(stop: str | Sequence[str], text: TextOptions | None) -> TextOptions:
    options = text or TextOptions()
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    return replace(options, stop=(*options.stop, *stops))


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
