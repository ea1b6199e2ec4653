"""The life of one request in seconds: what a span holds, and the definitions of every latency.

    arrival   accepted      first scheduled           first token                        last token   finish
       |---------|----------------|------------------------|-----------------------------------|---------|
        intake         queue        prefill + interleaved     decode
                                    (+ preempted)             (+ preempted)
       |------------------- TTFT --------------------------|------- (n - 1) x TPOT ------------|
       |------------------------------------- E2E -------------------------------------------------------|

`intake` runs from the full receipt of the request to its place in the waiting queue: tokenising, hand-over, and the end
of the iteration under way. `queue` is the wait for the *first* seat; time back in the queue after a preemption is
`preempted` and is never hidden in prefill or decode. `prefill` is the steps that computed the prompt, `interleaved` is
the rest of the way to the first token: steps that fed others only, and the pauses between steps.
"""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import NamedTuple

from evenflow.core.request import FinishReason, RequestId


class TtftParts(NamedTuple):
    """Seconds that add up to the time to first token; `queue` is by reason (waits.py).

    The engine knows neither the front's tokenising nor its delivery: they are 0, and tokenising is part of `intake`,
    until the front says otherwise (`with_front`).
    """

    intake: float
    queue: Mapping[str, float]
    prefill: float
    interleaved: float
    preempted: float
    tokenise: float = 0.0
    delivery: float = 0.0

    @property
    def total(self) -> float:
        engine = self.intake + sum(self.queue.values()) + self.prefill + self.interleaved + self.preempted
        return self.tokenise + engine + self.delivery

    def with_front(self, *, tokenise_seconds: float, delivery_seconds: float) -> "TtftParts":
        """The same as the client saw it: tokenising taken out of `intake`, delivery added at the end."""
        tokenise = min(tokenise_seconds, self.intake)
        return self._replace(intake=self.intake - tokenise, tokenise=tokenise, delivery=delivery_seconds)


def _no_times() -> "array[float]":
    return array("d")


@dataclass(slots=True, eq=False)
class RequestSpan:
    """One request. Written by `SpanFold` only, and complete once `finish_time` is set.

    `token_times` are the ends of the steps that gave a token; k tokens of one step are spread evenly over the gap
    before them. `queue_by_reason` is the wait for the first seat; `preempted_times` and `preempted_by_reason` are the
    stays in the queue after a preemption; `stalled_by_reason` is the steps that left the running request out.
    `token_times` are filled in at the end, `ttft_parts` when the step that gave the first token has ended.

    Latencies are written as soon as they are known, because whoever counts them reads each several times. TPOT is known
    at the end, and undefined for fewer than two tokens; `queue_seconds` is up to the end for who never got a seat.
    """

    request_id: RequestId
    arrival_time: float
    accepted_time: float
    num_prompt_tokens: int
    max_tokens: int
    flow: str
    tenant: str
    service_class: str
    priority: int
    first_scheduled_time: float | None = None
    first_token_time: float | None = None
    finish_time: float | None = None
    finish_reason: FinishReason | None = None
    token_times: "array[float]" = field(default_factory=_no_times)
    num_output_tokens: int = 0
    num_cached_tokens: int = 0
    num_preemptions: int = 0
    num_lost_tokens: int = 0
    num_recomputed_tokens: int = 0
    num_swapped_in_tokens: int = 0
    queue_by_reason: dict[str, float] = field(default_factory=dict)
    preempted_by_reason: dict[str, float] = field(default_factory=dict)
    stalled_by_reason: dict[str, float] = field(default_factory=dict)
    preempted_times: list[tuple[float, float]] = field(default_factory=list)
    ttft_parts: TtftParts | None = None
    ttft_seconds: float | None = None
    e2e_seconds: float | None = None
    tpot_seconds: float | None = None
    queue_seconds: float | None = None

    @property
    def completed(self) -> bool:
        """It ended by itself: neither aborted nor failed."""
        return self.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)

    @property
    def itl_seconds(self) -> list[float]:
        """One sample per token after the first."""
        return [later - earlier for earlier, later in pairwise(self.token_times)]

    @property
    def prefill_seconds(self) -> float | None:
        """First seat to first token, without the time back in the queue."""
        if self.first_token_time is None or self.first_scheduled_time is None:
            return None
        return self.first_token_time - self.first_scheduled_time - self.preempted_seconds(until=self.first_token_time)

    @property
    def decode_seconds(self) -> float | None:
        """First token to last token, without the time back in the queue."""
        if self.first_token_time is None or not self.token_times:
            return None
        last = self.token_times[-1]
        preempted = self.preempted_seconds(until=last) - self.preempted_seconds(until=self.first_token_time)
        return last - self.first_token_time - preempted

    @property
    def inference_seconds(self) -> float | None:
        """First seat to last token, without the time back in the queue."""
        if self.first_scheduled_time is None or not self.token_times:
            return None
        last = self.token_times[-1]
        return last - self.first_scheduled_time - self.preempted_seconds(until=last)

    def preempted_seconds(self, *, until: float = inf) -> float:
        """Time back in the queue after preemptions, up to an instant."""
        if not self.preempted_times:
            return 0
        return sum(min(end, until) - start for start, end in self.preempted_times if start < until)
