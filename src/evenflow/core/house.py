"""Who waits, who runs, and the verbs by which a request changes between the two.

The passes of a step (memory.py, admission.py) decide; these verbs keep seats, blocks, classes, queue and log in step
with each other. `preempt` is the one place where a victim leaves memory.
"""

from bisect import insort
from operator import attrgetter

from evenflow.core.config import SchedulerConfig
from evenflow.core.draft import Draft
from evenflow.core.events import Preempted, Scheduled
from evenflow.core.kv_cache import KVCacheManager, PrefixHit
from evenflow.core.line import WaitingLine
from evenflow.core.newcomers import Newcomers
from evenflow.core.plan import Entry
from evenflow.core.policy.preemption import PreemptionMode
from evenflow.core.policy.scheduling import SchedulingPolicy
from evenflow.core.ports import EventSink
from evenflow.core.request import RequestId, RequestState, RequestStatus, own_tokens

by_key = attrgetter("key")

_IN_LINE = {RequestStatus.WAITING, RequestStatus.PREEMPTED, RequestStatus.SWAPPED}


class House:
    """`running` is sorted by key, always; `left` are those who gave up a seat since the last plan."""

    __slots__ = ("config", "emit", "kv", "left", "line", "newcomers", "policy", "running", "step")

    def __init__(self, config: SchedulerConfig, kv: KVCacheManager, policy: SchedulingPolicy, emit: EventSink) -> None:
        self.config = config
        self.kv = kv
        self.policy = policy
        self.emit = emit
        self.line = WaitingLine(policy)
        self.newcomers = Newcomers()
        self.running: list[RequestState] = []
        self.left: list[RequestId] = []
        self.step = 0

    # ---- waiting ---------------------------------------------------------------------------------------------------

    def wait(self, state: RequestState) -> None:
        """A newcomer joins the line."""
        self.line.push(state)
        self.newcomers.join(state)

    def stop_waiting(self, state: RequestState) -> None:
        self.line.remove(state)
        if state.status is RequestStatus.WAITING:
            self.newcomers.leave(state)

    def drop(self, state: RequestState) -> None:
        """It waits no longer, and will not run: what it has in host memory is given up."""
        self.stop_waiting(state)
        self.kv.discard(state.request.id)
        state.num_computed_tokens = 0

    # ---- running ---------------------------------------------------------------------------------------------------

    def enter(
        self, state: RequestState, hit: PrefixHit, *, upto: int, keep_free: int, draft: Draft, now: float
    ) -> None:
        """A waiting request takes a seat, and blocks for its first `upto` tokens, which must be there."""
        opened = self.kv.open(state, hit, upto=upto, keep_free=keep_free)
        assert opened
        self.stop_waiting(state)
        resumed = state.num_preemptions > 0
        num_cached, num_swapped_in = hit.num_cached_tokens, hit.num_swapped_in_tokens
        self.emit(Scheduled(now, self.step, state.request.id, num_cached, resumed, num_swapped_in))
        state.move_to(RequestStatus.RUNNING)
        state.num_computed_tokens = hit.num_tokens
        state.num_passed_by = 0
        if not resumed:
            state.num_cached_tokens = num_cached
            if type(state.token_ids) is not list:
                state.token_ids = own_tokens(state.token_ids)
            self.policy.fairness.admitted(state, state.num_remaining_tokens)
        insort(self.running, state, key=by_key)
        mine = self.policy.classes.of(state.place.service_class)
        mine.seats += 1
        mine.blocks += self.num_blocks(state)
        draft.entered.append(Entry(state.request, state.piece(0, state.num_tokens), num_cached, num_swapped_in))
        draft.newcomers.add(state.request.id)
        draft.num_cached_tokens += num_cached
        insort(draft.prefills, state, key=by_key)

    def grow(self, state: RequestState, *, num_blocks: int) -> None:
        """So many more blocks, which must be free."""
        grown = self.kv.grow(state.request.id, upto=state.num_tokens)
        assert grown
        self.policy.classes.of(state.place.service_class).blocks += num_blocks

    def leave(self, state: RequestState) -> None:
        """Give up seat and blocks."""
        self._give_up_seat(state)
        self.kv.close(state.request.id)

    def _give_up_seat(self, state: RequestState) -> None:
        """To be followed by giving up its blocks, which are no longer counted."""
        mine = self.policy.classes.of(state.place.service_class)
        mine.seats -= 1
        mine.blocks -= self.num_blocks(state)
        self.running.remove(state)
        self.left.append(state.request.id)

    def preempt(self, victim: RequestState, winner: RequestState, draft: Draft, now: float) -> None:
        """The victim leaves memory so that the winner may have its room, and waits again in its old place in line."""
        num_computed = victim.num_computed_tokens
        self._give_up_seat(victim)
        if self._swap_out(victim):
            victim.move_to(RequestStatus.SWAPPED)
            mode, num_lost, num_swapped_out = PreemptionMode.SWAP, 0, num_computed
        else:
            self.kv.close(victim.request.id)
            victim.move_to(RequestStatus.PREEMPTED)
            victim.num_computed_tokens = 0
            mode, num_lost, num_swapped_out = PreemptionMode.RECOMPUTE, num_computed, 0
        self.emit(Preempted(now, self.step, victim.request.id, num_lost, winner.request.id, mode, num_swapped_out))
        victim.num_preemptions += 1
        self.line.push(victim)
        draft.preempted.append(victim.request.id)

    def _swap_out(self, victim: RequestState) -> bool:
        """If the policy wishes it, and there is something to keep and room for it."""
        if self.kv.num_host_blocks == 0:
            return False
        wish = self.policy.preemption.mode_of(self.kv.loss(victim))
        return wish is PreemptionMode.SWAP and self.kv.swap_out(victim)

    def num_blocks(self, state: RequestState) -> int:
        return len(self.kv.table(state.request.id).block_ids)

    # ---- under another policy --------------------------------------------------------------------------------------

    def move_under(self, policy: SchedulingPolicy) -> list[RequestState]:
        """Everybody takes the place that the policy gives; nobody starts, stops or loses anything. Who changed flow."""
        waiting = sorted(self.line, key=by_acceptance)
        self.policy, self.line, self.newcomers = policy, WaitingLine(policy), Newcomers()
        moved = []
        for state in (*self.running, *waiting):
            flow = state.place.flow
            state.num_passed_by = 0  # a new policy makes a new promise
            state.key = policy.key_of(state.request, state.key[-1])
            state.place = policy.place_of(state.request)
            if state.place.flow != flow:
                moved.append(state)
        self.running.sort(key=by_key)
        for state in self.running:
            mine = policy.classes.of(state.place.service_class)
            mine.seats += 1
            mine.blocks += self.num_blocks(state)
        for state in waiting:
            self.line.push(state)
            if state.status is RequestStatus.WAITING:
                self.newcomers.join(state)
        return moved

    def check(self) -> None:
        """Re-derive and compare everything. O(everything)."""
        assert self.running == sorted(self.running, key=by_key)
        assert all(state.status is RequestStatus.RUNNING for state in self.running)
        waiting = list(self.line)
        assert all(state.status in _IN_LINE for state in waiting)
        assert len(waiting) == self.line.num_waiting
        new = {state.request.id for state in waiting if state.status is RequestStatus.WAITING}
        assert {state.request.id for state in self.newcomers} == new
        assert self.newcomers.num_requests == len(new)
        assert len(self.running) <= self.config.max_num_seqs
        for each in self.policy.classes:
            own = [state for state in self.running if state.place.service_class == each.name]
            assert each.seats == len(own)
            assert each.blocks == sum(map(self.num_blocks, own))
        for state in (*waiting, *self.running):
            assert state.num_computed_tokens < state.num_tokens
            assert state.place == self.policy.place_of(state.request)
            assert state.key == self.policy.key_of(state.request, state.key[-1])
        self.kv.check(self.running, [state for state in waiting if state.status is RequestStatus.SWAPPED])


def by_acceptance(state: RequestState) -> float:
    return state.key[-1]
