"""Second pass of a step, seats: who of the waiting comes in.

Heads are tried in order, the head of a lane at a time. One that cannot come in shuts a door, and says why for everybody
behind it:

    no token, no seat, no memory       everybody: whoever ranks behind must not take what it waits for
    its class has what it may have     the class
    enough long prompts in progress    the lane of long prompts

A head that does not fit (memory) may be passed by a few others of its own flow, each of which may be passed no more
than that many times: so small requests use what a large one cannot, and the large one knows how long.
"""

from evenflow.core.draft import Draft, no_token_for
from evenflow.core.house import House
from evenflow.core.plan import EVERYBODY, Door, WaitReason
from evenflow.core.policy.fairness import Lane
from evenflow.core.policy.interleave import Demand
from evenflow.core.request import RequestState
from evenflow.core.room import Search, full_for

_DOES_NOT_FIT = (WaitReason.KV, WaitReason.RESERVE)
_LASTING = (WaitReason.MAX_NUM_SEQS, WaitReason.STATIC_BATCH)
"""They hold until somebody leaves. Who waits for memory might find more of its prefix cached meanwhile."""


def admit(house: House, draft: Draft, budget: int, now: float) -> None:
    """Fills `draft.entered` and `draft.doors`; every waiting request has a door that speaks for it afterwards."""
    line = house.line
    if not line.num_waiting:
        return
    reason = _shut_to_all(house, draft)
    shut: set[str] = set()
    while (lane := line.next_lane(shut)) is not None:
        head = lane.head()
        refused = reason or _bring_in(house, draft, head, budget, now)
        match refused:
            case None:
                continue
            case WaitReason.QUOTA:
                for each in line.heads_of(head.place.service_class, shut):
                    draft.doors.append(Door(each.place.lane, each.request.id, refused))
                    shut.add(each.place.lane)
            case WaitReason.LONG_PROMPT:
                draft.doors.append(Door(head.place.lane, head.request.id, refused))
                shut.add(head.place.lane)
            case WaitReason.KV | WaitReason.RESERVE:
                _backfill(house, draft, lane, budget, now)
                _shut_behind(house, draft, lane, refused)
                return
            case _:
                draft.doors.append(Door(EVERYBODY, head.request.id, refused))
                return


def lasting_door(house: House, budget: int) -> Door | None:
    """The door that `admit` would find shut for everybody in step after step of at least this budget, while the same
    requests decode and the same wait; None if it might find another. Changes nothing."""
    lane = house.line.next_lane()
    assert lane is not None
    head = lane.head()
    if not (house.policy.is_static or full_for(house, head)):  # spares the split of the budget, often 20 us
        return None
    draft = Draft()
    draft.decodes = house.running
    reason = _shut_to_all(house, draft) or _refused_at_once(house, draft, head, budget)
    return Door(EVERYBODY, head.request.id, reason) if reason in _LASTING else None


def _shut_to_all(house: House, draft: Draft) -> WaitReason | None:
    """Nobody comes in while memory is being taken back, or while a static batch runs."""
    if draft.preempted:
        return WaitReason.PREEMPTION
    return WaitReason.STATIC_BATCH if house.policy.is_static and house.running else None


def _shut_behind(house: House, draft: Draft, lane: Lane, reason: WaitReason) -> None:
    """Where tenants take turns, only the head's waits for the memory, and the others of the lane for the turn."""
    head = lane.head()
    if lane.num_flows == 1:
        draft.doors.append(Door(EVERYBODY, head.request.id, reason))
        return
    draft.doors.append(Door(head.place.flow, head.request.id, reason))
    draft.doors.append(Door(head.place.lane, head.request.id, WaitReason.FAIRNESS))
    if house.line.num_waiting > len(lane):
        draft.doors.append(Door(EVERYBODY, head.request.id, reason))


def _bring_in(house: House, draft: Draft, head: RequestState, budget: int, now: float) -> WaitReason | None:
    """Give a waiting request its seat and blocks; or say why not, and change nothing."""
    reason = _refused_at_once(house, draft, head, budget)
    if reason is not None:
        return reason
    room = Search(house, head, draft.newcomers).find()
    if isinstance(room, WaitReason):
        return room
    for victim in room.victims:
        draft.drop(victim)
        house.preempt(victim, head, draft, now)
    house.enter(head, room.hit, upto=room.upto, keep_free=room.keep_free, draft=draft, now=now)
    return None


def _refused_at_once(house: House, draft: Draft, head: RequestState, budget: int) -> WaitReason | None:
    """Why it cannot come in, as far as that is known without a look at memory."""
    policy = house.policy
    if head.request.id in draft.preempted:
        return WaitReason.PREEMPTION
    if head.place.is_long:
        num_long = sum([state.place.is_long for state in draft.prefills])
        if num_long >= policy.long_prompts.max_in_progress:
            return WaitReason.LONG_PROMPT
    has_token = not (draft.prefills or head.place.is_long) and budget > len(draft.decodes)  # whatever the split: 2 us
    if not (has_token or policy.is_static):  # a batch is formed whatever the size of a step
        demand = Demand(budget, len(draft.decodes), budget, house.running, draft.newcomers, draft.backlog)
        reason = no_token_for(draft, head, policy, policy.interleave.split(demand))
        if reason is not None:
            return reason
    return WaitReason.MAX_NUM_SEQS if full_for(house, head) else None


def _backfill(house: House, draft: Draft, lane: Lane, budget: int, now: float) -> None:
    most = house.policy.spec.max_backfill
    passed = [lane.head()]
    for follower in lane.followers(most):
        if any(state.num_passed_by >= most for state in passed):
            return
        refused = _bring_in(house, draft, follower, budget, now)
        if refused is None:
            for state in passed:
                state.num_passed_by += 1
        elif refused in _DOES_NOT_FIT:
            passed.append(follower)
        else:
            return
