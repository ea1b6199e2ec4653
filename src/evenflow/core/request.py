"""A request: what was asked (frozen) and how it stands (one mutable record).

There are no phases. A request has `num_computed_tokens` chasing `num_tokens`; prefill, decode, chunked prefill, a
prefix-cache hit and recompute after preemption are all the same motion. `RequestState.move_to` is the only writer of
`status`, and the legal edges are the table `TRANSITIONS`.

                      +-----------+
                      v           |
    WAITING ------> RUNNING ---> PREEMPTED      (recompute: its KV blocks are gone)
       |             |  ^  |          |
       |             |  |  +-----> SWAPPED      (its KV blocks are in host memory)
       |             v  +-------------+
       +--------> FINISHED <----------+
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, NewType

from evenflow.core.errors import InvalidRequest

RequestId = NewType("RequestId", str)

MAX_TOP_LOGPROBS = 20


class RequestStatus(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    SWAPPED = "swapped"
    FINISHED = "finished"


TRANSITIONS: Mapping[RequestStatus, Set[RequestStatus]] = {
    RequestStatus.WAITING: {RequestStatus.RUNNING, RequestStatus.FINISHED},
    RequestStatus.RUNNING: {RequestStatus.PREEMPTED, RequestStatus.SWAPPED, RequestStatus.FINISHED},
    RequestStatus.PREEMPTED: {RequestStatus.RUNNING, RequestStatus.FINISHED},
    RequestStatus.SWAPPED: {RequestStatus.RUNNING, RequestStatus.PREEMPTED, RequestStatus.FINISHED},
    RequestStatus.FINISHED: frozenset(),
}


class FinishReason(Enum):
    """EXPIRED: its TTFT deadline passed while it waited. SHED: it gave its place in a full queue to a better class."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"
    EXPIRED = "expired"
    SHED = "shed"


def _require(condition: bool, param: str, message: str) -> None:
    if not condition:
        raise InvalidRequest(f"{param} {message}", param=param)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one request picks its tokens; independent of every other request in the batch.

    `temperature` 0 is greedy. `top_k` 0, `top_p` 1 and `min_p` 0 switch their filter off. `logprobs` is the number of
    alternatives to report per output token (0 reports the sampled token only, None reports nothing);
    `prompt_logprobs` the same for prompt tokens. Stop *strings* are the front's business (engine/text.py) and are not
    here. Raises `InvalidRequest` naming the field.
    """

    max_tokens: int = 16
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None
    min_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    def __post_init__(self) -> None:
        _require(self.max_tokens >= 1, "max_tokens", f"must be at least 1, not {self.max_tokens}")
        _require(0.0 <= self.temperature <= 100.0, "temperature", f"must be between 0 and 100, not {self.temperature}")
        _require(0.0 < self.top_p <= 1.0, "top_p", f"must be above 0 and at most 1, not {self.top_p}")
        _require(self.top_k >= 0, "top_k", f"must be 0 (off) or more, not {self.top_k}")
        _require(0.0 <= self.min_p <= 1.0, "min_p", f"must be between 0 and 1, not {self.min_p}")
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            _require(-2.0 <= value <= 2.0, name, f"must be between -2 and 2, not {value}")
        _require(
            0.01 <= self.repetition_penalty <= 100.0,
            "repetition_penalty",
            f"must be between 0.01 and 100, not {self.repetition_penalty}",
        )
        for token_id, bias in self.logit_bias:
            _require(token_id >= 0, "logit_bias", f"has a negative token id, {token_id}")
            _require(-100.0 <= bias <= 100.0, "logit_bias", f"must be between -100 and 100, not {bias}")
        _require(self.seed is None or -(2**63) <= self.seed < 2**63, "seed", "must fit a signed 64-bit integer")
        _require(
            0 <= self.min_tokens <= self.max_tokens,
            "min_tokens",
            f"must be between 0 and max_tokens ({self.max_tokens}), not {self.min_tokens}",
        )
        _require(all(t >= 0 for t in self.stop_token_ids), "stop_token_ids", "must not be negative")
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(self, name)
            _require(
                value is None or 0 <= value <= MAX_TOP_LOGPROBS,
                name,
                f"must be between 0 and {MAX_TOP_LOGPROBS}, not {value}",
            )

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0


def _is_unicode(text: str) -> bool:
    """JSON can carry lone surrogates, which no encoding of text can."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


DEFAULT_CLASS = "default"
DEFAULT_TENANT = ""


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked. Times are seconds on the log's clock; token ids are already checked against the vocabulary.

    `eos_token_ids` are the model's; they end generation unless `sampling.ignore_eos`. Requests share cached KV blocks
    only with requests of the same `cache_salt`.
    """

    id: RequestId
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    arrival_time: float
    eos_token_ids: tuple[int, ...] = ()
    cache_salt: str = ""
    tenant: str = DEFAULT_TENANT
    service_class: str = DEFAULT_CLASS
    priority: int = 0
    ttft_deadline: float | None = None

    def __post_init__(self) -> None:
        _require(len(self.prompt_token_ids) > 0, "prompt", "must not be empty")
        for name in ("id", "cache_salt", "tenant", "service_class"):
            _require(_is_unicode(getattr(self, name)), name, "holds half of a surrogate pair, which is no text")


OrderKey = tuple[float, ...]


class Place(NamedTuple):
    """Where a request stands under the policy that holds: its class there, its queue, and whether its prompt is long.

    A lane holds the waiting requests of one class and kind; a flow is one tenant's part of it, or all of it.
    """

    service_class: str
    lane: str
    flow: str
    is_long: bool


NOWHERE = Place("", "", "", False)


@dataclass(slots=True, eq=False)
class RequestState:
    """How a request stands. Owned by the scheduler; nobody else writes to it.

    `token_ids` is prompt then output and only ever grows. `key` is the policy's place for this request in the one total
    order. `block_hashes` is derived from `token_ids` (kv_cache.py) and kept so that a chain is hashed once.
    `num_cached_tokens` is what the prefix cache spared the prompt when the request first ran; `num_prompt_logprobs` is
    how many of the prompt's log-probabilities have been handed out. `num_passed_by` counts who came in before it
    because it did not fit.
    """

    request: Request
    key: OrderKey
    place: Place = NOWHERE
    token_ids: list[int] = field(default_factory=list)
    status: RequestStatus = RequestStatus.WAITING
    num_computed_tokens: int = 0
    num_cached_tokens: int = 0
    num_preemptions: int = 0
    num_prompt_logprobs: int = 0
    num_passed_by: int = 0
    finish_reason: FinishReason | None = None
    block_hashes: list[bytes] = field(default_factory=list)
    stop_token_ids: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self.token_ids = list(self.request.prompt_token_ids)
        sampling = self.request.sampling
        eos = () if sampling.ignore_eos else self.request.eos_token_ids
        self.stop_token_ids = frozenset(sampling.stop_token_ids) | frozenset(eos)

    def move_to(self, status: RequestStatus) -> None:
        assert status in TRANSITIONS[self.status], f"{self.request.id}: {self.status} -> {status}"
        self.status = status

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.request.prompt_token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - len(self.request.prompt_token_ids)

    @property
    def num_remaining_tokens(self) -> int:
        """Known tokens that the model has not seen yet; 1 for a request that decodes."""
        return len(self.token_ids) - self.num_computed_tokens
