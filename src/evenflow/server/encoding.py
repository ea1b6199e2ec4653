"""Text to token ids and back, without holding up the event loop.

Three lanes by size, because the loop that parses requests also delivers everybody's tokens:

    short    in place: the work costs less than the two hops to a thread and back
    usual    a small pool
    giant    a lane of its own, one at a time, so that megabytes of prompt never stand in the way of usual ones

A thread only helps if the tokenizer lets go of the interpreter lock meanwhile; the real one does.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")

SHORT_CHARS = 1024
GIANT_CHARS = 256 * 1024

TemplateMessage = Mapping[str, str]


class ChatTemplate(Protocol):
    def render(
        self, messages: Sequence[TemplateMessage], *, add_generation_prompt: bool, **variables: object
    ) -> str: ...


class Tokenizer(Protocol):
    """What the server needs of a tokenizer. Called from several threads at once."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def eos_token_ids(self) -> tuple[int, ...]: ...

    @property
    def chat_template(self) -> ChatTemplate | None: ...

    def encode(self, text: str, /, *, add_special_tokens: bool = True) -> list[int]: ...

    def decode(self, token_ids: Sequence[int], /, *, skip_special_tokens: bool = True) -> str: ...

    def is_special(self, token_id: int, /) -> bool: ...

    def token_text(self, token_id: int, /) -> str: ...

    def token_bytes(self, token_id: int, /) -> bytes: ...


class Lanes:
    """Runs tokenizer work of a known size in the lane for that size. Threads start with the first work they get."""

    def __init__(self, num_threads: int = 2) -> None:
        self._usual = ThreadPoolExecutor(num_threads, thread_name_prefix="tokenize")
        self._giant = ThreadPoolExecutor(1, thread_name_prefix="tokenize-giant")

    async def run(self, num_chars: int, work: Callable[[], T]) -> T:
        if num_chars <= SHORT_CHARS:
            return work()
        pool = self._giant if num_chars > GIANT_CHARS else self._usual
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    def close(self) -> None:
        """Work that has not begun is dropped; work that has begun ends by itself."""
        for pool in (self._usual, self._giant):
            pool.shutdown(wait=False, cancel_futures=True)
