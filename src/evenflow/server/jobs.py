"""A job: one API call as the sequences it asks for, checked and ready to run.

`n` sequences of each prompt; sequence `index` is prompt `index // n`. Each is a request of its own to the engine, with
an id derived from the job's: the engine knows nothing of `n`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from evenflow.core.errors import DuplicateRequest
from evenflow.core.request import Request, RequestId, SamplingParams
from evenflow.engine.api import Delta, TextOptions
from evenflow.server.prompts import Prompt
from evenflow.server.replies import PromptTokensDetails, Usage
from evenflow.server.schema import GenerationFields
from evenflow.server.wishes import Wishes, scheduling_of

# Not among the characters that a client's request id may have, so a derived id is never another job's id.
SEQUENCE_SEPARATOR = "~"


@dataclass(frozen=True, slots=True)
class Call:
    """Who asked and when: what a job has that is not in the body. `arrival_time` is when the body was complete."""

    request_id: str
    created: int
    arrival_time: float
    wishes: Wishes


@dataclass(frozen=True, slots=True)
class Job:
    """`id` is the id of the answer; `requests[i]` makes choice i, from `prompts[i // n]`."""

    id: str
    call: Call
    model: str
    prompts: tuple[Prompt, ...]
    n: int
    requests: tuple[Request, ...]
    options: TextOptions
    stream: bool
    include_usage: bool

    def prompt_of(self, index: int) -> Prompt:
        return self.prompts[index // self.n]


@dataclass(frozen=True, slots=True)
class Draft:
    """A job's fields before its prompts were looked at."""

    id: str
    call: Call
    model: str
    fields: GenerationFields
    options: TextOptions
    eos_token_ids: tuple[int, ...]

    def job(self, prompts: Sequence[Prompt], sampling: Sequence[SamplingParams]) -> Job:
        """`sampling[i]` is for `prompts[i]`."""
        n = self.fields.n or 1
        pairs = list(zip(prompts, sampling, strict=True))
        return Job(
            id=self.id,
            call=self.call,
            model=self.model,
            prompts=tuple(prompts),
            n=n,
            requests=tuple(self._request(index, n, len(pairs), *pairs[index // n]) for index in range(n * len(pairs))),
            options=self.options,
            stream=bool(self.fields.stream),
            include_usage=bool(self.fields.stream_options and self.fields.stream_options.include_usage),
        )

    def _request(self, index: int, n: int, num_prompts: int, prompt: Prompt, sampling: SamplingParams) -> Request:
        alone = n * num_prompts == 1
        return Request(
            id=RequestId(self.id if alone else f"{self.id}{SEQUENCE_SEPARATOR}{index}"),
            prompt_token_ids=prompt.token_ids,
            sampling=sampling if index % n == 0 else _nth_sampling(sampling, index % n),
            arrival_time=self.call.arrival_time,
            eos_token_ids=self.eos_token_ids,
            cache_salt=self.fields.cache_salt or "",
            **scheduling_of(self.fields, self.call.wishes, self.call.arrival_time),
        )


def _nth_sampling(sampling: SamplingParams, n: int) -> SamplingParams:
    """What the n-th sequence of a prompt uses: with another seed, or all sequences would be the same text."""
    if sampling.seed is None:
        return sampling
    # Stays within the 64 bits that a seed has.
    return replace(sampling, seed=(sampling.seed + n + 2**63) % 2**64 - 2**63)


class LiveJobs:
    """The request ids in use."""

    def __init__(self) -> None:
        self._ids: set[str] = set()

    @contextmanager
    def hold(self, request_id: str) -> Iterator[None]:
        if request_id in self._ids:
            raise DuplicateRequest(
                f"x-request-id {request_id} is that of a request still running; send another", param="x-request-id"
            )
        self._ids.add(request_id)
        try:
            yield
        finally:
            self._ids.remove(request_id)


class UsageCount:
    """Counts a job's tokens. A prompt counts once, however many sequences were made of it."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._completion_tokens = 0
        self._cached = [0] * len(job.prompts)

    def add(self, index: int, delta: Delta) -> None:
        self._completion_tokens += len(delta.token_ids)
        # Later sequences of a prompt find it cached by the first, which says nothing about what the client had cached.
        if delta.num_cached_tokens and index % self._job.n == 0:
            prompt = index // self._job.n
            self._cached[prompt] = max(self._cached[prompt], delta.num_cached_tokens)

    def usage(self) -> Usage:
        prompt_tokens = sum(len(prompt.token_ids) for prompt in self._job.prompts)
        return Usage(
            prompt_tokens=prompt_tokens,
            completion_tokens=self._completion_tokens,
            total_tokens=prompt_tokens + self._completion_tokens,
            prompt_tokens_details=PromptTokensDetails(cached_tokens=sum(self._cached)),
        )
