"""Service classes: who ranks before whom, and how many seats and KV blocks each may have.

    guaranteed   kept free for the class by all others, and never taken back from it
    between      shared by all; the better rank displaces the worse, within one rank the order piece decides
    maximum      never exceeded by the class

A guarantee is room that stays empty while its owner is away. A class that ranks first needs none to get in (it
displaces the others); it needs one to get in without displacing anybody. A class that ranks last needs one if it is to
get anything at all while the others have work. Blocks are counted per request: blocks that requests share count for
each of them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor

from evenflow.core.policy.bound import Bound, Limits
from evenflow.core.policy.spec import ClassSpec
from evenflow.core.request import DEFAULT_CLASS

NO_MAXIMUM = 1 << 62
_ROUNDING = 1e-9  # a share of 0.29 of 100 is 29


@dataclass(slots=True, eq=False)
class ServiceClass:
    """A class in numbers, and what its running requests have now."""

    name: str
    rank: int
    guaranteed_seats: int
    max_seats: int
    guaranteed_blocks: int
    max_blocks: int
    seats: int = 0
    blocks: int = 0


def _service_class(spec: ClassSpec, limits: Limits) -> ServiceClass:
    return ServiceClass(
        name=spec.name,
        rank=spec.rank,
        guaranteed_seats=floor(spec.guaranteed_seats * limits.max_num_seqs + _ROUNDING),
        max_seats=_maximum(spec.max_seats, limits.max_num_seqs),
        guaranteed_blocks=floor(spec.guaranteed_kv * limits.num_blocks + _ROUNDING),
        max_blocks=_maximum(spec.max_kv, limits.num_blocks),
    )


def _maximum(share: float, total: int) -> int:
    """Without a maximum of its own a class may count more blocks than there are: shared ones count for each request."""
    return NO_MAXIMUM if share >= 1.0 else max(1, ceil(share * total - _ROUNDING))


class ServiceClasses:
    __slots__ = ("_by_name", "_guaranteed", "_limits")

    def __init__(self, specs: Iterable[ClassSpec], limits: Limits) -> None:
        self._limits = limits
        self._by_name: Mapping[str, ServiceClass] = {spec.name: _service_class(spec, limits) for spec in specs}
        self._guaranteed: Sequence[ServiceClass] = [
            each for each in self._by_name.values() if each.guaranteed_seats or each.guaranteed_blocks
        ]

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[ServiceClass]:
        return iter(self._by_name.values())

    def of(self, name: str) -> ServiceClass:
        """A class that is no more (a live change took it away) counts as the default one."""
        return self._by_name.get(name) or self._by_name[DEFAULT_CLASS]

    def kept_seats(self, mine: ServiceClass, gone: Mapping[str, int]) -> int:
        """Seats that others are guaranteed and do not use, once so many of theirs were given up."""
        if not self._guaranteed:
            return 0
        return sum(
            max(0, each.guaranteed_seats - each.seats + gone.get(each.name, 0))
            for each in self._guaranteed
            if each is not mine
        )

    def kept_blocks(self, mine: ServiceClass, gone: Mapping[str, int]) -> int:
        """Blocks that others are guaranteed and do not use, once so many of theirs were given up."""
        if not self._guaranteed:
            return 0
        return sum(
            max(0, each.guaranteed_blocks - each.blocks + gone.get(each.name, 0))
            for each in self._guaranteed
            if each is not mine
        )

    def most_blocks(self, mine: ServiceClass) -> int:
        """What a request of this class may come to hold when it has the engine to itself."""
        if not self._guaranteed:
            return min(mine.max_blocks, self._limits.num_blocks)
        others = sum(each.guaranteed_blocks for each in self._guaranteed if each is not mine)
        return min(mine.max_blocks, self._limits.num_blocks - others)

    def most_seats(self, mine: ServiceClass) -> int:
        others = sum(each.guaranteed_seats for each in self._guaranteed if each is not mine)
        return min(mine.max_seats, self._limits.max_num_seqs - others)

    def bounds(self) -> tuple[Bound, ...]:
        limits = self._limits
        found = []
        for each in self:
            sentence = f"Kept free for {each.name}, and never taken back from it."
            if each.guaranteed_seats:
                found.append(Bound(f"{each.name}_guaranteed_seats", each.guaranteed_seats, "seats", sentence))
            if each.guaranteed_blocks:
                found.append(Bound(f"{each.name}_guaranteed_blocks", each.guaranteed_blocks, "blocks", sentence))
            sentence = f"The most that {each.name} ever has."
            if self.most_seats(each) < limits.max_num_seqs:
                found.append(Bound(f"{each.name}_max_seats", self.most_seats(each), "seats", sentence))
            if each.max_blocks < limits.num_blocks:
                found.append(Bound(f"{each.name}_max_blocks", each.max_blocks, "blocks", sentence))
        return tuple(found)
