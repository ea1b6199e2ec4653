"""One request of a load run: as planned, and as the client saw it.

    intended      when the trace, or a user who is free, would have it sent
    allowed       when it may be: later than intended where it waits for its parent's answer or a place under the cap
    sent          when its first byte was on its way (a new connection is opened after that)

Latencies count from `intended`, so that neither a late client nor a capped one flatters the server; dispatch lag is
`sent` minus `allowed`, and is the client's own fault. All times are seconds on the loop's monotonic clock.
"""

from array import array
from dataclasses import dataclass, field
from enum import Enum

from evenflow.workload.trace import PrefixBlocks


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """`send_at` is in seconds after the start of the run. `index` says which content the prompt has."""

    index: int
    request_id: str
    send_at: float
    num_prompt_tokens: int
    max_tokens: int
    name: str | None = None
    parent: str | None = None
    prefix: PrefixBlocks | None = None
    service_class: str | None = None
    tenant: str | None = None
    text: str | None = None


class Reason(Enum):
    """Why a request failed, or was not sent."""

    HTTP = "HTTP status"
    CONNECT = "no connection"
    LOST = "connection lost"
    STALLED = "stalled"
    NOT_A_STREAM = "not a stream"
    CUT_OFF = "stream cut off"
    NO_TOKENS = "no tokens"
    TOO_MANY_TOKENS = "more tokens than asked for"
    MALFORMED = "malformed stream"
    SERVER_ERROR = "error in the stream"
    PARENT_FAILED = "its parent failed"
    CLIENT_LIMIT = "no more connections on this side"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Failure:
    """`detail` is a sentence, with the server's own words where there are some."""

    reason: Reason
    detail: str


class TokenCounts(Enum):
    """Where the number of tokens in each chunk comes from."""

    REPORTED = "reported with each chunk"
    PER_CHUNK = "one per chunk, as many as the server reports in the end"
    SPREAD = "the server's total, spread over the chunks by their text"
    ASSUMED = "one per chunk, the server reports no total"


@dataclass(slots=True, eq=False)
class ObservedRequest:
    """What the client saw. A chunk is everything that one read of the socket brought.

    `chunk_tokens` is there once the request has ended well; until then `chunk_events` counts the events per chunk.
    """

    plan: PlannedRequest
    intended: float
    allowed: float | None = None
    sent: float | None = None
    chunk_times: "array[float]" = field(default_factory=lambda: array("d"))
    chunk_events: "array[int]" = field(default_factory=lambda: array("l"))
    chunk_chars: "array[int]" = field(default_factory=lambda: array("l"))
    chunk_tokens: "array[int] | None" = None
    finished: float | None = None
    num_output_tokens: int | None = None
    num_prompt_tokens: int | None = None
    num_cached_tokens: int | None = None
    token_counts: TokenCounts | None = None
    finish_reason: str | None = None
    failure: Failure | None = None

    @property
    def num_events(self) -> int:
        """Those that brought tokens: about as many as tokens, until the server says how many there were."""
        return sum(self.chunk_events)

    @property
    def complete(self) -> bool:
        """It was answered to the end."""
        return self.finished is not None and self.failure is None

    @property
    def error(self) -> str | None:
        """What the server, or the way to it, is to blame for. Being cut off by one's own client is none."""
        if self.failure is None or self.failure.reason is Reason.INTERRUPTED:
            return None
        return self.failure.detail

    @property
    def ttft(self) -> float | None:
        return self.chunk_times[0] - self.intended if self.chunk_times else None

    @property
    def e2e(self) -> float | None:
        return self.finished - self.intended if self.finished is not None and self.complete else None

    @property
    def gaps(self) -> list[float]:
        """Time between consecutive chunks."""
        return [b - a for a, b in zip(self.chunk_times, self.chunk_times[1:], strict=False)]
