"""When each request is sent: open loop, open loop under a cap, or closed loop.

Open loop is what a real crowd is: it does not wait for the server. Waiting for an answer before sending the next
request hides the queue that the server has built up (coordinated omission). Where a cap makes requests wait, the wait
is part of their latency, and once places are free they go out no faster than the trace's own gaps, or a burst would
follow that nobody planned. A closed loop is `num_users` users who each wait for their answer, think, and ask again.
"""

from dataclasses import dataclass

from evenflow.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """`most_in_flight` is the cap; None is none."""

    most_in_flight: int | None = None

    def __post_init__(self) -> None:
        if self.most_in_flight is not None and self.most_in_flight < 1:
            raise ConfigError(f"max_concurrency must be at least 1, not {self.most_in_flight}")

    def describe(self) -> str:
        return "open loop" + (f", at most {self.most_in_flight} in flight" if self.most_in_flight is not None else "")


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """Requests are taken in the order of the trace; their times do not matter. None is begun after `seconds`."""

    num_users: int
    think_seconds: float = 0.0
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.num_users < 1:
            raise ConfigError(f"users must be at least 1, not {self.num_users}")
        if not 0.0 <= self.think_seconds < float("inf"):
            raise ConfigError(f"think must be 0 s or more, not {self.think_seconds}")
        if self.seconds is not None and not self.seconds > 0.0:
            raise ConfigError(f"duration must be above 0 s, not {self.seconds}")

    def describe(self) -> str:
        thinking = f" who think for {self.think_seconds:g} s" if self.think_seconds else ""
        return f"closed loop, {self.num_users} users{thinking}"


Pacing = OpenLoop | ClosedLoop


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait before a request is given up: for a connection, the next byte, the next token, and all of it.

    After `connects_in_a_row` failed connections with nothing else in between, the server counts as gone.
    """

    connect_seconds: float = 10.0
    silence_seconds: float = 120.0
    token_seconds: float = 600.0  # a server may send signs of life while it queues
    whole_seconds: float = 3600.0
    connects_in_a_row: int = 100

    def __post_init__(self) -> None:
        if not self.silence_seconds > 0.0:
            raise ConfigError(f"timeout must be above 0 s, not {self.silence_seconds:g}")
