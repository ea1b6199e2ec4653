"""Whether there is room, and whom it takes to make some: seats and blocks against the quotas of the classes.

A request that does not fit may take the room of others, from the back of the order: never of a class that is within its
guarantee of what is short, and if its own class is at its maximum, only of that class.
"""

from collections.abc import Container, Sequence
from typing import NamedTuple

from evenflow.core.house import House
from evenflow.core.kv_cache import PrefixHit
from evenflow.core.plan import WaitReason
from evenflow.core.policy.classes import ServiceClass
from evenflow.core.request import RequestId, RequestState


class Shortage(NamedTuple):
    """Why there is no room. `of_blocks`: memory is short, else seats; `own_class`: only its own class can make room."""

    reason: WaitReason
    of_blocks: bool
    own_class: bool


class Room(NamedTuple):
    """`victims` must leave, in this order; then `hit` and blocks for `upto` tokens fit, with `keep_free` to spare."""

    victims: Sequence[RequestState]
    hit: PrefixHit
    upto: int
    keep_free: int


def full_for(house: House, state: RequestState) -> bool:
    """Whether every seat is taken, and the last in line is not to be displaced, so nobody is. Asked first: it is cheap,
    and in a busy engine nearly always the answer."""
    running = house.running
    return len(running) >= house.policy.limits.max_num_seqs and not house.policy.displaces(state, running[-1])


class Search:
    """For room for one request. Changes nothing."""

    __slots__ = ("_entered", "_gone_blocks", "_gone_seats", "_house", "_mine", "_state", "victims")

    def __init__(self, house: House, state: RequestState, entered: Container[RequestId]) -> None:
        self._house = house
        self._state = state
        self._mine = house.policy.classes.of(state.place.service_class)
        self._entered = entered
        self.victims: list[RequestState] = []
        self._gone_seats: dict[str, int] = {}  # by class, if the victims left
        self._gone_blocks: dict[str, int] = {}

    def find(self) -> Room | WaitReason:
        """The fewest victims, from the back. Seats are asked for first: a look at the prefix cache costs more."""
        while (shortage := self._seat_shortage()) is not None:
            if not self._add_victim(shortage):
                return shortage.reason
        house, state = self._house, self._state
        hit, upto = house.kv.lookup(state), house.policy.reserve.tokens(state)
        while (shortage := self._block_shortage(hit, upto)) is not None:
            if not self._add_victim(shortage):
                return self._named(shortage, hit, upto)
        return Room(self.victims, hit, upto, self._keep_free())

    def _seat_shortage(self) -> Shortage | None:
        classes, mine, gone = self._house.policy.classes, self._mine, self._gone_seats
        if mine.seats - gone.get(mine.name, 0) >= mine.max_seats:
            return Shortage(WaitReason.QUOTA, of_blocks=False, own_class=True)
        free = self._house.policy.limits.max_num_seqs - len(self._house.running) + len(self.victims)
        if free < 1:
            return Shortage(WaitReason.MAX_NUM_SEQS, of_blocks=False, own_class=False)
        if free <= classes.kept_seats(mine, gone):
            return Shortage(WaitReason.QUOTA, of_blocks=False, own_class=False)
        return None

    def _block_shortage(self, hit: PrefixHit, upto: int) -> Shortage | None:
        kv, mine = self._house.kv, self._mine
        needed = kv.blocks_for(upto)
        if mine.blocks - self._gone_blocks.get(mine.name, 0) + needed > mine.max_blocks:
            return Shortage(WaitReason.QUOTA, of_blocks=True, own_class=True)
        keep_free = self._keep_free()
        most_free = kv.num_free_blocks + sum(self._gone_blocks.values())  # blocks that victims share are not freed
        if most_free >= needed - len(hit.block_ids) + keep_free:
            without = [victim.request.id for victim in self.victims]
            if kv.could_open(hit, upto=upto, keep_free=keep_free, without=without):
                return None
        return Shortage(WaitReason.KV, of_blocks=True, own_class=False)

    def _keep_free(self) -> int:
        """The watermark, unless nobody else would run, and what other classes are guaranteed."""
        house = self._house
        watermark = house.config.watermark_blocks if len(house.running) > len(self.victims) else 0
        return watermark + house.policy.classes.kept_blocks(self._mine, self._gone_blocks)

    def _add_victim(self, shortage: Shortage) -> bool:
        house = self._house
        for victim in reversed(house.running):
            if victim in self.victims:
                continue
            # Who entered in this step is in the plan already, and is never taken out of it.
            if not house.policy.displaces(self._state, victim) or victim.request.id in self._entered:
                return False
            theirs = house.policy.classes.of(victim.place.service_class)
            if self._may_take(theirs, shortage):
                self.victims.append(victim)
                name = theirs.name
                self._gone_seats[name] = self._gone_seats.get(name, 0) + 1
                self._gone_blocks[name] = self._gone_blocks.get(name, 0) + house.num_blocks(victim)
                return True
        return False

    def _may_take(self, theirs: ServiceClass, shortage: Shortage) -> bool:
        if shortage.own_class or theirs is self._mine:
            return theirs is self._mine
        if shortage.of_blocks:
            return theirs.blocks - self._gone_blocks.get(theirs.name, 0) > theirs.guaranteed_blocks
        return theirs.seats - self._gone_seats.get(theirs.name, 0) > theirs.guaranteed_seats

    def _named(self, shortage: Shortage, hit: PrefixHit, upto: int) -> WaitReason:
        """Of memory that is short: would it do without the reserve for the output, or without other classes' room?"""
        if shortage.reason is not WaitReason.KV:
            return shortage.reason
        house, mine, without = self._house, self._mine, [victim.request.id for victim in self.victims]
        keep_free = self._keep_free()
        known = self._state.num_tokens
        if upto > known and house.kv.could_open(hit, upto=known, keep_free=keep_free, without=without):
            return WaitReason.RESERVE
        kept = house.policy.classes.kept_blocks(mine, self._gone_blocks)
        if kept and house.kv.could_open(hit, upto=upto, keep_free=keep_free - kept, without=without):
            return WaitReason.QUOTA
        return WaitReason.KV
