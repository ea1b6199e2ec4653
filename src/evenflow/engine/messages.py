"""What crosses between the front and the engine loop: commands in, one result per step out. Frozen and plain.

Every `Add` is answered once: by a `Refusal`, or by a last `RequestOutput` whose `finish_reason` is set, which comes
also after an `Abort`. An `Abort` of an unknown or finished request is no error: it crossed the last output on its way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from evenflow.core import errors
from evenflow.core.errors import EngineUnavailable, EvenflowError, PolicyProblem, QueueFull, RequestError
from evenflow.core.events import Event
from evenflow.core.plan import RequestOutput
from evenflow.core.request import FinishReason, Request, RequestId
from evenflow.engine.api import PolicyView


@dataclass(frozen=True, slots=True)
class Add:
    """Queue a request."""

    request: Request


@dataclass(frozen=True, slots=True)
class Abort:
    """Free a request within one step. `reason` is what its last output says: STOP where a stop string was met."""

    request_id: RequestId
    reason: FinishReason = FinishReason.ABORT


@dataclass(frozen=True, slots=True)
class AskPolicy:
    """Say what the scheduling policy is; first change it, between two steps, if there is a `change`: a table (policy/
    table.py) as JSON. `number` comes back with the answer."""

    number: int
    change: bytes | None = None


Command = Add | Abort | AskPolicy


@dataclass(frozen=True, slots=True)
class Refusal:
    """An `Add` that the core did not take; `error_class` is the name of a class of core/errors.py."""

    request_id: RequestId
    error_class: str
    message: str
    param: str | None = None
    retry_after_seconds: float | None = None

    @classmethod
    def of(cls, request_id: RequestId, error: RequestError) -> "Refusal":
        retry_after = error.retry_after_seconds if isinstance(error, QueueFull) else None
        return cls(request_id, type(error).__name__, error.message, error.param, retry_after)

    def to_error(self) -> EvenflowError:
        """The error that the core raised, to be raised again where the request came from."""
        if self.retry_after_seconds is not None:
            return QueueFull(self.message, retry_after_seconds=self.retry_after_seconds)
        known = getattr(errors, self.error_class, None)
        if isinstance(known, type) and issubclass(known, RequestError) and known is not QueueFull:
            return known(self.message, param=self.param)
        return EngineUnavailable(self.message)


@dataclass(frozen=True, slots=True)
class PolicyAnswer:
    """What holds now. `problems` say why a change was refused; then nothing has changed."""

    number: int
    policy: PolicyView
    problems: tuple[PolicyProblem, ...] = ()


class StepResult(NamedTuple):
    """What one turn of the loop gave. (A NamedTuple as its outputs are: every step makes one.)"""

    outputs: tuple[RequestOutput, ...] = ()
    events: tuple[Event, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    answers: tuple[PolicyAnswer, ...] = ()


class InboxClosed(Exception):
    """The other side is gone: what still runs is of use to nobody, and the loop ends where it stands."""


class Inbox(Protocol):
    def drain(self) -> Sequence[Command]:
        """What has arrived since the last call; never blocks. Raises `InboxClosed` once the other side is gone."""
        ...

    def wait(self) -> bool:
        """Block until there is something to drain; False if nothing will come any more, and the loop ends."""
        ...
