"""One request of a finished run, in seconds after the run's start: what is stored, measured and compared.

It says nothing of where it comes from: a replay over HTTP, a server's event log, a simulation.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenflow.replay.client import Outcome
from evenflow.replay.request import ObservedRequest, Reason, TokenCounts


@dataclass(frozen=True, slots=True)
class Record:
    """`num_prompt_tokens` and `max_tokens` were asked for; `server_prompt_tokens` and `num_output_tokens` were had.

    A chunk is what arrived at one instant. `reason` is None if all went well; a request that was never sent has no
    reason and no `sent`.
    """

    request_id: str
    intended: float
    allowed: float | None
    sent: float | None
    finished: float | None
    num_prompt_tokens: int
    max_tokens: int
    num_output_tokens: int | None
    server_prompt_tokens: int | None
    cached_tokens: int | None
    service_class: str | None
    tenant: str | None
    reason: Reason | None
    detail: str | None
    token_counts: TokenCounts | None
    chunk_times: Sequence[float]
    chunk_tokens: Sequence[int]

    @property
    def ok(self) -> bool:
        return self.sent is not None and self.reason is None

    @property
    def ttft(self) -> float | None:
        return self.chunk_times[0] - self.intended if self.ok else None

    @property
    def ttft_from_send(self) -> float | None:
        return self.chunk_times[0] - self.sent if self.ok and self.sent is not None else None

    @property
    def tpot(self) -> float | None:
        """None for one token: it has no time per token after the first."""
        num = sum(self.chunk_tokens)
        return (self.chunk_times[-1] - self.chunk_times[0]) / (num - 1) if self.ok and num > 1 else None

    @property
    def e2e(self) -> float | None:
        return self.finished - self.intended if self.ok and self.finished is not None else None

    @property
    def dispatch_lag(self) -> float | None:
        return self.sent - self.allowed if self.sent is not None and self.allowed is not None else None

    def token_gaps(self) -> NDArray[np.float64]:
        """One per token after the first; a chunk of k tokens after a gap g gives k of g/k. They sum to last - first."""
        if not self.ok:
            return np.zeros(0)
        counts = np.array(self.chunk_tokens, dtype=np.int64)
        gaps = np.diff(np.array(self.chunk_times), prepend=self.chunk_times[0])
        # The first chunk has no gap before it, and one of its tokens is the first of all.
        each = gaps / np.maximum(counts, 1)
        counts[0] -= 1
        return np.repeat(each, counts)

    def chunk_gaps(self) -> NDArray[np.float64]:
        return np.diff(np.array(self.chunk_times)) if self.ok else np.zeros(0)


def records_of(outcome: Outcome) -> tuple[Record, ...]:
    return tuple(_record(observed, outcome.start) for observed in outcome.observed)


def _record(observed: ObservedRequest, start: float) -> Record:
    def since(instant: float | None) -> float | None:
        return None if instant is None else round(instant - start, 6)

    plan, failure = observed.plan, observed.failure
    tokens: Sequence[int] = observed.chunk_tokens if observed.chunk_tokens is not None else observed.chunk_events
    return Record(
        request_id=plan.request_id,
        intended=round(observed.intended - start, 6),
        allowed=since(observed.allowed),
        sent=since(observed.sent),
        finished=since(observed.finished),
        num_prompt_tokens=plan.num_prompt_tokens,
        max_tokens=plan.max_tokens,
        num_output_tokens=observed.num_output_tokens,
        server_prompt_tokens=observed.num_prompt_tokens,
        cached_tokens=observed.num_cached_tokens,
        service_class=plan.service_class,
        tenant=plan.tenant,
        reason=failure.reason if failure is not None else None,
        detail=failure.detail if failure is not None else None,
        token_counts=observed.token_counts,
        chunk_times=tuple(round(time - start, 6) for time in observed.chunk_times),
        chunk_tokens=tuple(tokens),
    )
