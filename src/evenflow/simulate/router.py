"""Which of several replicas a request goes to, decided when it arrives.

round-robin                 in turn
least-outstanding-tokens    the one that owes the fewest prompt and output tokens (ties: in turn)
prefix-aware                the one that has seen most of this prompt's leading blocks, unless it owes much more than
                            the least busy one; then that one
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

from evenflow.core.errors import ConfigError
from evenflow.replay.request import PlannedRequest


class Load(Protocol):
    """What a router sees of a replica."""

    @property
    def outstanding_tokens(self) -> int: ...


class Router(Protocol):
    def choose(self, plan: PlannedRequest, loads: Sequence[Load], /) -> int: ...


class RoundRobin:
    def __init__(self) -> None:
        self._next = -1

    def choose(self, plan: PlannedRequest, loads: Sequence[Load], /) -> int:
        self._next = (self._next + 1) % len(loads)
        return self._next


class LeastOutstandingTokens:
    def __init__(self) -> None:
        self._turn = RoundRobin()

    def choose(self, plan: PlannedRequest, loads: Sequence[Load], /) -> int:
        first = self._turn.choose(plan, loads)
        order = [(first + offset) % len(loads) for offset in range(len(loads))]
        return min(order, key=lambda index: loads[index].outstanding_tokens)


_KEPT_BLOCKS = 1 << 16
_MAX_IMBALANCE = 2.0
_SMALL_LOAD_TOKENS = 4096


class PrefixAware:
    """Remembers, for each replica, the blocks of the prompts it was last given: a guess at its prefix cache."""

    def __init__(self) -> None:
        self._seen: dict[int, OrderedDict[int, None]] = {}
        self._least = LeastOutstandingTokens()

    def choose(self, plan: PlannedRequest, loads: Sequence[Load], /) -> int:
        least = self._least.choose(plan, loads)
        chosen = least
        if plan.prefix is not None:
            known = [self._known(index, plan.prefix.ids) for index in range(len(loads))]
            best = max(range(len(loads)), key=lambda index: (known[index], -loads[index].outstanding_tokens))
            bearable = _MAX_IMBALANCE * loads[least].outstanding_tokens + _SMALL_LOAD_TOKENS
            if known[best] > 0 and loads[best].outstanding_tokens <= bearable:
                chosen = best
            self._remember(chosen, plan.prefix.ids)
        return chosen

    def _known(self, index: int, ids: Sequence[int]) -> int:
        seen = self._seen.get(index, OrderedDict())
        for count, block_id in enumerate(ids):
            if block_id not in seen:
                return count
        return len(ids)

    def _remember(self, index: int, ids: Sequence[int]) -> None:
        seen = self._seen.setdefault(index, OrderedDict[int, None]())
        for block_id in ids:
            seen[block_id] = None
            seen.move_to_end(block_id)
        while len(seen) > _KEPT_BLOCKS:
            seen.popitem(last=False)


ROUTERS: dict[str, Callable[[], Router]] = {
    "round-robin": RoundRobin,
    "least-outstanding-tokens": LeastOutstandingTokens,
    "prefix-aware": PrefixAware,
}


def router_of(name: str) -> Router:
    if name not in ROUTERS:
        raise ConfigError(f"router must be one of {', '.join(ROUTERS)}, not {name!r}")
    return ROUTERS[name]()
