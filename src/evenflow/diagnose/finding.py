"""What a rule says: a defect, the evidence for it, and the settings that would remove it.

A rule reads facts and proposes; what a change would do is another matter, which only running the load again can tell
(effect.py). `WhatIf` is the seam for that: a simulator takes a change and gives its effect.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from evenflow.core.request import RequestId
from evenflow.diagnose.effect import Effect

EXAMPLES = 5
_FLAGS_OF_SERVE = ("max_num_seqs", "max_num_batched_tokens")


@dataclass(frozen=True, slots=True)
class Change:
    """`settings` are name and value, to be set together; `because` says why these values. `of` is whose settings."""

    settings: tuple[tuple[str, str], ...]
    because: str
    of: str = "server"

    @property
    def is_of_server(self) -> bool:
        return self.of == "server"

    @property
    def flags(self) -> str:
        """As on the command line of `evenflow serve` or `evenflow replay`. Blocks have no flag; memory has."""
        return " ".join(self._flag(name, value) for name, value in self.settings)

    def _flag(self, name: str, value: str) -> str:
        if not self.is_of_server or name in _FLAGS_OF_SERVE:
            return f"--{name.replace('_', '-')} {value}"
        return f"{name}={value}" if name == "num_blocks" else f"--policy-set {name}={value}"


WhatIf = Callable[[Change], Effect]


@dataclass(frozen=True, slots=True)
class Finding:
    """`steps` and `requests` are examples, the worst first; `num_steps` and `num_requests` say how many there are.

    `numbers` are the quantities that the rule compared with its limits. `effects` has one for each change, None where
    nobody was asked.
    """

    rule: str
    sentence: str
    numbers: Mapping[str, float]
    changes: tuple[Change, ...]
    steps: tuple[int, ...] = ()
    num_steps: int = 0
    requests: tuple[RequestId, ...] = ()
    num_requests: int = 0
    effects: tuple[Effect | None, ...] = field(default=())


def settings(because: str, *, of: str = "server", **values: object) -> Change:
    return Change(tuple((name, str(value)) for name, value in values.items()), because, of)


def examples(ids: Sequence[RequestId]) -> tuple[RequestId, ...]:
    return tuple(ids[:EXAMPLES])
