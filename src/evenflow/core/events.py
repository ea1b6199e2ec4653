"""The facts. Every number that anyone sees is a fold over these; nothing derived is stored here.

All times are seconds on one monotonic clock per log. Frozen and plain, so that a log line is the event.

Events are NamedTuples, because a step waits until they are made and packed: with the caches that a model's step leaves,
a step's record takes 7 to 10 us as one and 29 us as a frozen dataclass, and the pipe to the front takes tuples as they
are.
"""

from typing import NamedTuple

from evenflow.core.content import logged
from evenflow.core.plan import Door, LeftOut
from evenflow.core.policy.preemption import PreemptionMode
from evenflow.core.request import FinishReason, RequestId, RequestState

SCHEMA_VERSION = 3


class Arrived(NamedTuple):
    """A request was accepted into the waiting queue. `time` is when the front had received it in full."""

    time: float
    request_id: RequestId
    accepted_time: float
    num_prompt_tokens: int
    max_tokens: int
    flow: str
    tenant: str
    service_class: str
    priority: int
    ttft_deadline: float | None = None
    prompt_logprobs: bool = False

    @classmethod
    def of(cls, state: RequestState, now: float) -> "Arrived":
        request = state.request
        return cls(
            time=request.arrival_time,
            request_id=request.id,
            accepted_time=now,
            num_prompt_tokens=state.num_prompt_tokens,
            max_tokens=request.sampling.max_tokens,
            flow=state.place.flow,
            tenant=request.tenant,
            service_class=request.service_class,
            priority=request.priority,
            ttft_deadline=request.ttft_deadline,
            prompt_logprobs=request.sampling.prompt_logprobs is not None,
        )


class Rejected(NamedTuple):
    """A request that the scheduler refused."""

    time: float
    request_id: RequestId
    reason: str


class Scheduled(NamedTuple):
    """A request began to run, or began again after a preemption. `cached_tokens` came from the prefix cache, and the
    `swapped_in_tokens` after them from host memory."""

    time: float
    step: int
    request_id: RequestId
    cached_tokens: int
    resumed: bool
    swapped_in_tokens: int


class Preempted(NamedTuple):
    """A running request lost its seat and blocks. `for_request` is who got the room.

    Of its computed tokens, `lost_tokens` are to be computed again (all of them, where `mode` is recompute), and
    `swapped_out_tokens` are in host memory (all of them, where it is swap).
    """

    time: float
    step: int
    request_id: RequestId
    lost_tokens: int
    for_request: RequestId
    mode: PreemptionMode
    swapped_out_tokens: int


class FirstToken(NamedTuple):
    time: float
    step: int
    request_id: RequestId


class Finished(NamedTuple):
    """The last event of every accepted request; there is exactly one.

    `content` numbers what its full KV blocks held, as far as the prefix cache asked: equal numbers are equal prefixes
    up to and with that block. So a log says who could share with whom, and nothing of what was written.
    """

    time: float
    step: int
    request_id: RequestId
    reason: FinishReason
    num_prompt_tokens: int
    num_output_tokens: int
    num_computed_tokens: int
    num_preemptions: int
    content: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, state: RequestState, reason: FinishReason, step: int, now: float, *, content: bool = True
    ) -> "Finished":
        return cls(
            time=now,
            step=step,
            request_id=state.request.id,
            reason=reason,
            num_prompt_tokens=state.num_prompt_tokens,
            num_output_tokens=state.num_output_tokens,
            num_computed_tokens=state.num_computed_tokens,
            num_preemptions=state.num_preemptions,
            content=tuple(map(logged, state.block_hashes)) if content else (),
        )


class StepRecord(NamedTuple):
    """One iteration. `scheduled` is (request, tokens) in plan order; `emitted` are the requests that got a token.

    `attended_context_tokens` sums, over fed tokens, the positions each attends to: what attention's cost depends on;
    `decode_context_tokens` is the part of it that streams at their last known token attend to.
    `swap_seconds` of `device_seconds` went into copying blocks out to host memory and in from there.
    """

    step: int
    start: float
    end: float
    prefill_tokens: int
    decode_tokens: int
    attended_context_tokens: int
    decode_context_tokens: int
    num_scheduled: int
    running: int
    waiting: int
    kv_blocks_used: int
    kv_blocks_total: int
    host_blocks_used: int
    host_blocks_total: int
    token_budget: int
    preemptions: int
    cached_tokens: int
    swapped_out_blocks: int
    swapped_in_blocks: int
    schedule_seconds: float
    device_seconds: float
    swap_seconds: float
    scheduled: tuple[tuple[RequestId, int], ...]
    emitted: tuple[RequestId, ...]
    left_out: tuple[LeftOut, ...]
    doors: tuple[Door, ...]


class ConfigChanged(NamedTuple):
    """The engine started with, or was moved to, these settings (names and printable values).

    `limits` and `policy` (a table as JSON) are the same for programs: exactly what decisions depend on.
    """

    time: float
    settings: tuple[tuple[str, str], ...]
    limits: tuple[tuple[str, int], ...] = ()
    policy: str = ""


class PolicyChanged(NamedTuple):
    """The scheduling policy was replaced between two steps. `settings` are all of its fields, printable, and `policy`
    the same as a table in JSON.

    `moved` are the live requests, waiting or running, whose flow is another one now: (request, flow).
    """

    time: float
    step: int
    settings: tuple[tuple[str, str], ...]
    moved: tuple[tuple[RequestId, str], ...]
    policy: str = ""


Event = Arrived | Rejected | Scheduled | Preempted | FirstToken | Finished | StepRecord | ConfigChanged | PolicyChanged
