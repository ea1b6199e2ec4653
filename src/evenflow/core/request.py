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

from array import array
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, NewType

from evenflow.core.block_pool import BlockHash
from evenflow.core.errors import InvalidRequest
from evenflow.core.kinds import require_flag, require_integer, require_number, shown, wrong_kind

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


def _within(param: str, value: object, rule: str, holds: bool) -> None:
    if not holds:
        raise InvalidRequest(f"{param} {rule}, not {shown(value)}", param=param)


def _require(condition: bool, param: str, message: str) -> None:
    if not condition:
        raise InvalidRequest(f"{param} {message}", param=param)


_NUMBERS = (
    "temperature",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
)


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
        self._check_kinds()
        _within("max_tokens", self.max_tokens, "must be at least 1", self.max_tokens >= 1)
        _within("temperature", self.temperature, "must be between 0 and 100", 0.0 <= self.temperature <= 100.0)
        _within("top_p", self.top_p, "must be above 0 and at most 1", 0.0 < self.top_p <= 1.0)
        _within("top_k", self.top_k, "must be 0 (off) or more", self.top_k >= 0)
        _within("min_p", self.min_p, "must be between 0 and 1", 0.0 <= self.min_p <= 1.0)
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            _within(name, value, "must be between -2 and 2", -2.0 <= value <= 2.0)
        repetition = self.repetition_penalty
        _within("repetition_penalty", repetition, "must be between 0.01 and 100", 0.01 <= repetition <= 100.0)
        for token_id, bias in self.logit_bias:
            _within("logit_bias", token_id, "must have no negative token id", token_id >= 0)
            _within("logit_bias", bias, "must be between -100 and 100", -100.0 <= bias <= 100.0)
        seed = self.seed
        _within("seed", seed, "must fit a signed 64-bit integer", seed is None or -(2**63) <= seed < 2**63)
        low, high = self.min_tokens, self.max_tokens
        _within("min_tokens", low, "must be between 0 and max_tokens", 0 <= low <= high)
        for token_id in self.stop_token_ids:
            _within("stop_token_ids", token_id, "must not be negative", token_id >= 0)
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(self, name)
            in_range = value is None or 0 <= value <= MAX_TOP_LOGPROBS
            _within(name, value, f"must be between 0 and {MAX_TOP_LOGPROBS}", in_range)

    def _check_kinds(self) -> None:
        for name in ("max_tokens", "top_k", "min_tokens"):
            require_integer(name, getattr(self, name))
        for name in ("seed", "logprobs", "prompt_logprobs"):
            if getattr(self, name) is not None:
                require_integer(name, getattr(self, name))
        for name in _NUMBERS:
            require_number(name, getattr(self, name))
        require_flag("ignore_eos", self.ignore_eos)
        if type(self.stop_token_ids) is not tuple:
            raise wrong_kind("stop_token_ids", "a tuple of token ids", self.stop_token_ids)
        for token_id in self.stop_token_ids:
            require_integer("stop_token_ids", token_id)
        bias_pairs = self.logit_bias
        if type(bias_pairs) is not tuple or not all(type(pair) is tuple and len(pair) == 2 for pair in bias_pairs):
            raise wrong_kind("logit_bias", "a tuple of pairs, each a token id and its bias", self.logit_bias)
        for token_id, bias in self.logit_bias:
            require_integer("logit_bias", token_id)
            require_number("logit_bias", bias)

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
        if (self.id + self.cache_salt + self.tenant + self.service_class).isascii():  # nearly always
            return
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


_NONE: frozenset[int] = frozenset()


@dataclass(slots=True, eq=False)
class RequestState:
    """How a request stands. Owned by the scheduler; nobody else writes to it.

    `token_ids` is prompt then output and only ever grows. `key` is the policy's place for this request in the one total
    order. `block_hashes` is derived from `token_ids` (kv_cache.py) and kept so that a chain is hashed once.
    `num_cached_tokens` is what the prefix cache spared the prompt when the request first ran; `num_prompt_logprobs` is
    how many of the prompt's log-probabilities have been handed out. `num_passed_by` counts who came in before it
    because it did not fit. `max_num_tokens` is the prompt with the longest output that it may have. (Both lengths are
    asked for by every step, and the length of a request's own prompt is three looks away.)
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
    block_hashes: list[BlockHash] = field(default_factory=list)
    stop_token_ids: frozenset[int] = frozenset()
    num_prompt_tokens: int = field(init=False)
    max_num_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        prompt = self.request.prompt_token_ids
        # A simulation's prompts are arrays and ranges, which it has many of and reads none; see `own_tokens`.
        self.token_ids = list(prompt) if type(prompt) is tuple else prompt  # type: ignore[assignment]
        sampling = self.request.sampling
        self.num_prompt_tokens = len(prompt)
        self.max_num_tokens = self.num_prompt_tokens + sampling.max_tokens
        eos = () if sampling.ignore_eos else self.request.eos_token_ids
        stops = (*sampling.stop_token_ids, *eos)
        self.stop_token_ids = frozenset(stops) if stops else _NONE

    def move_to(self, status: RequestStatus) -> None:
        assert status in TRANSITIONS[self.status], f"{self.request.id}: {self.status} -> {status}"
        self.status = status

    def piece(self, start: int, end: int) -> tuple[int, ...]:
        """Some of its tokens, as they stand now. (A simulation's stay an array, of which only the length is read.)"""
        tokens = self.token_ids[start:end]
        return tuple(tokens) if type(tokens) is list else tokens  # type: ignore[return-value]

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_remaining_tokens(self) -> int:
        """Known tokens that the model has not seen yet; 1 for a request that decodes."""
        return len(self.token_ids) - self.num_computed_tokens


def own_tokens(prompt: Sequence[int]) -> list[int]:
    """A simulated prompt, shared until its request runs, as something that can grow: an array of its own, and of what
    is a mere length (content.py) one of a byte a token."""
    return array("B", bytes(len(prompt))) if type(prompt) is range else prompt[:]  # type: ignore[return-value]
