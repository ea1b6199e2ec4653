"""Everything that a user of evenflow can get wrong, as one tree.

    EvenflowError
    +-- ConfigError          settings that cannot be served        command line: exit 2
    |   +-- PolicyError      a scheduling policy that cannot be    names every field at fault and what would do
    +-- ModelError           model files that cannot be loaded     command line: exit 2
    +-- RequestError         a request that cannot be served       HTTP 4xx (server/errors.py has the table)
    |   +-- InvalidRequest   a field is wrong; names the field     400
    |   +-- ContextOverflow  prompt + max_tokens exceed the context 400
    |   +-- DuplicateRequest the id is in use                      400
    |   +-- QueueFull        try again later                       429
    |   +-- DeadlineTooSoon  its first token cannot be in time     504
    +-- EngineUnavailable    shutting down, not ready, or dead     503
        +-- EngineDead       nothing but a restart helps           503, and no word of trying again

What our own code guarantees is an `assert`, never one of these.
"""

from collections.abc import Iterable
from typing import NamedTuple


class EvenflowError(Exception):
    """Base of every error whose message is meant for a person."""


class ConfigError(EvenflowError):
    """Settings that cannot work; the message says which and what would."""


class PolicyProblem(NamedTuple):
    """What is wrong with one field of a scheduling policy, and the nearest value that would do."""

    field: str
    reason: str
    nearest: str


class PolicyError(ConfigError):
    """A scheduling policy that cannot be built; nothing has changed."""

    def __init__(self, problems: Iterable[PolicyProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{p.field}: {p.reason}; nearest that works: {p.nearest}" for p in self.problems))


class ModelError(EvenflowError):
    """A model file is missing, broken or of a kind evenflow does not know; the message names the file."""


class RequestError(EvenflowError):
    """A request that evenflow will not run. `param` is the request field at fault, if it is one field."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class InvalidRequest(RequestError):
    """A field of the request has a value that cannot be served."""


class ContextOverflow(InvalidRequest):
    """The prompt, or prompt plus `max_tokens`, does not fit the context length."""


class DuplicateRequest(InvalidRequest):
    """Another live request has the same id."""


class QueueFull(RequestError):
    """The server holds as much waiting work as it may; `retry_after_seconds` says when to come back."""

    def __init__(self, message: str, *, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class DeadlineTooSoon(RequestError):
    """By the measured speed of the queue its first token would come after its deadline, so it is not even queued."""


class EngineUnavailable(EvenflowError):
    """The engine does not take requests: it is starting, shutting down, or dead."""


class EngineDead(EngineUnavailable):
    """It will take none again: nothing here starts another one."""
