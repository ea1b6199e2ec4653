"""What the front of the house (HTTP server, `LLM`) sees of an engine: text deltas out, and how the engine is doing.

`engine/client.py` implements it over a link: to a process of its own (child.py) or to a thread (thread.py).
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from evenflow.core.events import Event
from evenflow.core.kinds import require_flag, require_integer, require_text, wrong_kind
from evenflow.core.plan import TokenLogprobs
from evenflow.core.policy.bound import Bound, Limits
from evenflow.core.policy.spec import PolicySpec
from evenflow.core.request import FinishReason, Request


class Delta(NamedTuple):
    """What one step added to one completion. Text held back for a stop string arrives in a later delta.

    `logprobs` has one entry per token of `token_ids` if the request asked for them. `stop_reason` is the stop string or
    stop token id that ended it (None for an end-of-sequence token or a length). `finish_reason` is set on the last
    delta only.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    num_cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TextOptions:
    """How the tokens of a request become text. Stop strings end the text before the match.

    Raises `InvalidRequest` naming the field.
    """

    stop: tuple[str, ...] = ()
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    min_tokens: int = 0

    def __post_init__(self) -> None:
        if type(self.stop) is not tuple:
            raise wrong_kind("stop", "a tuple of texts", self.stop)
        for text in self.stop:
            require_text("stop", text)
        require_flag("include_stop_str_in_output", self.include_stop_str_in_output)
        require_flag("skip_special_tokens", self.skip_special_tokens)
        require_integer("min_tokens", self.min_tokens)


class EngineState(Enum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    DEAD = "dead"


class MemoryUse(NamedTuple):
    """One part of the engine's memory, for people."""

    name: str
    num_bytes: int
    detail: str


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What the engine resolved at start; the front validates requests against it.

    `settings` and `memory` are for people: printable name and value of every resolved setting, and what takes how much.
    """

    max_model_len: int
    vocab_size: int
    num_kv_blocks: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    settings: tuple[tuple[str, str], ...] = ()
    memory: tuple[MemoryUse, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyView:
    """The scheduling policy that holds, what it promises, and the limits that the promises are computed from."""

    spec: PolicySpec
    bounds: tuple[Bound, ...]
    limits: Limits


class Engine(Protocol):
    """An engine as the front sees it. All coroutines belong to one event loop."""

    @property
    def state(self) -> EngineState: ...

    @property
    def death_reason(self) -> str | None:
        """Why the state is DEAD, for people; None while it is not."""
        ...

    @property
    def facts(self) -> EngineFacts:
        """Valid once `start` has returned."""
        ...

    async def start(self) -> None:
        """Returns when the engine accepts requests; raises ConfigError or ModelError with what it said otherwise."""
        ...

    def generate(self, request: Request, options: TextOptions) -> AsyncGenerator[Delta, None]:
        """Run one request. Leaving the generator early, in whatever way, aborts the request within one step.

        From the first `anext` on: raises RequestError if the engine refuses it, EngineUnavailable if the engine is
        draining, or dies meanwhile.
        """
        ...

    async def complete(self, request: Request, options: TextOptions) -> Delta:
        """All of one completion as one delta: the caller is woken once, not once per step. Cancelling it aborts.

        Raises what `generate` raises.
        """
        ...

    async def drain(self, timeout_seconds: float) -> None:
        """Refuse new requests, let running ones finish, abort what is left after the timeout."""
        ...

    async def stop(self) -> None:
        """End the engine now. Streams that are still open raise EngineUnavailable."""
        ...

    async def policy(self, change: Mapping[str, object] | None = None) -> PolicyView:
        """The scheduling policy, after `change` (a table of core/policy/table.py) has been laid over it.

        A change holds from the next step on and loses no request. Raises PolicyError, and changes nothing, if it cannot
        be; EngineUnavailable if the engine is gone.
        """
        ...

    def subscribe(self, sink: Callable[[Sequence[Event]], None]) -> None:
        """Call `sink` with each step's events, on the event loop."""
        ...
