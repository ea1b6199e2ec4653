"""Which tokens of which requests run in this step.

`schedule` decides, `update` applies what came of it; nothing else changes a request. A step is decided in three passes
over one total order, and each pass only narrows what the next may do, so nothing is ever un-planned:

    1. memory   running requests, front to back: each that needs a block for its next token gets it, preempting from the
                back of the same order until it fits or is itself the victim.
    2. seats    the head of each waiting flow comes in if everything known of it fits above the watermark, a seat is
                free and some token of the budget would be left for it. A head that cannot come in shuts the door for
                its own flow only, and the door's reason is everybody's reason behind it.
    3. tokens   the interleave piece splits the budget; it is handed out front to back (draft.py).

Three facts make "work exists => the plan is not empty" hold: the front running request can evict everyone behind it, an
idle engine may use the watermark, and `add` refuses what could not run alone.
"""

from bisect import insort
from collections.abc import Iterator, Sequence
from operator import attrgetter

from evenflow.core.config import SchedulerConfig
from evenflow.core.draft import Draft, hand_out_tokens
from evenflow.core.errors import ContextOverflow, DuplicateRequest, InvalidRequest, RequestError
from evenflow.core.events import Arrived, Finished, FirstToken, Preempted, Rejected, Scheduled
from evenflow.core.kv_cache import KVCacheManager, PrefixHit
from evenflow.core.plan import (
    Door,
    Entry,
    RequestOutput,
    StepOutcome,
    StepPlan,
    TokenLogprobs,
    WaitReason,
)
from evenflow.core.policy import FlowId, SchedulingPolicy
from evenflow.core.ports import EventSink
from evenflow.core.queue import WaitingQueue
from evenflow.core.request import FinishReason, Request, RequestId, RequestState, RequestStatus

_RUNNING = RequestStatus.RUNNING
_by_key = attrgetter("key")


def _new_prompt_logprobs(state: RequestState, start: int, outcome: StepOutcome) -> tuple[TokenLogprobs, ...]:
    """What a chunk from `start` reports for the first time: a recompute after a preemption reports it all again."""
    entries = outcome.prompt_logprobs.get(state.request.id, ())
    known = state.num_prompt_logprobs
    state.num_prompt_logprobs = max(known, start + len(entries))
    return entries[max(0, known - start) :]


class Scheduler:
    def __init__(self, config: SchedulerConfig, kv: KVCacheManager, policy: SchedulingPolicy, emit: EventSink) -> None:
        self._config = config
        self._kv = kv
        self._policy = policy
        self._emit = emit
        self._waiting = WaitingQueue()
        self._running: list[RequestState] = []  # sorted by key, always
        self._states: dict[RequestId, RequestState] = {}
        self._left: list[RequestId] = []  # who gave up a seat since the last plan
        self._step = 0
        self._accepted = 0

    @property
    def has_work(self) -> bool:
        return bool(self._states)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def kv(self) -> KVCacheManager:
        return self._kv

    # ---- requests in and out ---------------------------------------------------------------------------------------

    def add(self, request: Request, *, now: float) -> None:
        """Queue a request. Raises `RequestError`, and changes nothing, if it could not run even alone."""
        try:
            self._refuse_what_cannot_run(request)
        except RequestError as error:
            self._emit(Rejected(now, request.id, error.message))
            raise
        self._accepted += 1
        state = RequestState(request, key=(*self._policy.order.key(request), self._accepted))
        self._states[request.id] = state
        flow = self._policy.fairness.flow_of(request)
        self._waiting.push(flow, state)
        self._emit(
            Arrived(
                time=request.arrival_time,
                request_id=request.id,
                accepted_time=now,
                num_prompt_tokens=state.num_prompt_tokens,
                max_tokens=request.sampling.max_tokens,
                flow=flow,
                tenant=request.tenant,
                service_class=request.service_class,
                priority=request.priority,
            )
        )

    def _refuse_what_cannot_run(self, request: Request) -> None:
        if request.id in self._states:
            raise DuplicateRequest(f"request id {request.id!r} is already in use; send a new id", param="request_id")
        vocab_size = self._config.vocab_size
        for name, ids in (
            ("prompt", request.prompt_token_ids),
            ("logit_bias", [token_id for token_id, _ in request.sampling.logit_bias]),
        ):
            if ids and not 0 <= min(ids) <= max(ids) < vocab_size:
                raise InvalidRequest(f"{name} has a token id outside 0..{vocab_size - 1}", param=name)
        total = len(request.prompt_token_ids) + request.sampling.max_tokens
        # The last token is returned, never fed, so it needs no slot.
        limit = min(self._config.max_model_len, self._kv.num_blocks * self._kv.block_size + 1)
        if total > limit:
            raise ContextOverflow(
                f"prompt of {len(request.prompt_token_ids)} tokens plus max_tokens {request.sampling.max_tokens} is "
                f"{total}, more than the context of {limit} tokens; shorten the prompt or lower max_tokens",
                param="max_tokens",
            )

    def finish(self, request_id: RequestId, reason: FinishReason, *, now: float) -> bool:
        """End a request from outside (abort, stop string). False if it is not live (it may just have ended)."""
        state = self._states.get(request_id)
        if state is None:
            return False
        if state.status is _RUNNING:
            self._leave(state)
        else:
            self._waiting.remove(self._policy.fairness.flow_of(state.request), state)
        self._end(state, reason, now)
        return True

    def _end(self, state: RequestState, reason: FinishReason, now: float) -> None:
        state.move_to(RequestStatus.FINISHED)
        state.finish_reason = reason
        del self._states[state.request.id]
        self._emit(
            Finished(
                time=now,
                step=self._step,
                request_id=state.request.id,
                reason=reason,
                num_prompt_tokens=state.num_prompt_tokens,
                num_output_tokens=state.num_output_tokens,
                num_computed_tokens=state.num_computed_tokens,
                num_preemptions=state.num_preemptions,
            )
        )

    def _leave(self, state: RequestState) -> None:
        self._running.remove(state)
        self._kv.close(state.request.id)
        self._left.append(state.request.id)

    # ---- deciding a step -------------------------------------------------------------------------------------------

    def schedule(self, *, now: float) -> StepPlan:
        self._step += 1
        budget = self._policy.budget.tokens()
        draft = Draft()
        self._secure_memory(draft, now)
        self._admit(draft, budget, now)
        left, self._left = tuple(self._left), []
        split = self._policy.interleave.split(budget, len(draft.decodes))
        hand_out_tokens(draft, split, self._running, self._kv)
        return StepPlan(
            step=self._step,
            chunks=tuple(draft.chunks),
            token_budget=budget,
            num_prefill_tokens=draft.num_prefill_tokens,
            num_decode_tokens=draft.num_decode_tokens,
            attended_context_tokens=draft.attended_context_tokens,
            num_cached_tokens=draft.num_cached_tokens,
            entered=tuple(draft.entered),
            left=left,
            preempted=tuple(draft.preempted),
            left_out=tuple(draft.left_out),
            doors=tuple(draft.doors),
        )

    def _secure_memory(self, draft: Draft, now: float) -> None:
        kv, running = self._kv, self._running
        index = 0
        while index < len(running):  # victims leave from the end, at or after `index`
            state = running[index]
            num_tokens = len(state.token_ids)
            if num_tokens > kv.table(state.request.id).capacity:
                while not kv.grow(state.request.id, upto=num_tokens):
                    victim = running[-1]
                    self._preempt(victim, state, draft, now)
                    if victim is state:
                        return
            remaining = num_tokens - state.num_computed_tokens
            if remaining == 1:
                draft.decodes.append(state)
            else:
                draft.backlog += remaining
            index += 1

    def _preempt(self, victim: RequestState, winner: RequestState, draft: Draft, now: float) -> None:
        """Recompute: the blocks go back to the pool (published ones may be hit again), the request to the queue."""
        self._leave(victim)
        victim.move_to(RequestStatus.PREEMPTED)
        self._emit(Preempted(now, self._step, victim.request.id, victim.num_computed_tokens, winner.request.id))
        victim.num_computed_tokens = 0
        victim.num_preemptions += 1
        self._waiting.push(self._policy.fairness.flow_of(victim.request), victim)
        draft.preempted.append(victim.request.id)

    def _admit(self, draft: Draft, budget: int, now: float) -> None:
        open_flows = dict.fromkeys(self._waiting.flows())
        pressed = bool(draft.preempted)  # memory was short a moment ago: nobody new in this step
        while open_flows:
            flow = self._policy.fairness.pick(open_flows)
            head = self._waiting.head(flow)
            if head is None:
                del open_flows[flow]
                continue
            reason = WaitReason.PREEMPTION if pressed else self._bring_in(flow, head, draft, budget, now)
            if reason is not None:
                draft.doors.append(Door(flow, head.request.id, reason))
                del open_flows[flow]
        if draft.preempted and not pressed:
            self._shut_doors_of_displaced(draft)

    def _shut_doors_of_displaced(self, draft: Draft) -> None:
        """Whom a head of another flow displaced may be the only one to wait in its own: that flow has no door yet."""
        shut = {door.flow for door in draft.doors}
        for flow in self._waiting.flows():
            head = self._waiting.head(flow)
            if flow not in shut and head is not None:
                draft.doors.append(Door(flow, head.request.id, WaitReason.PREEMPTION))

    def _bring_in(self, flow: FlowId, head: RequestState, draft: Draft, budget: int, now: float) -> WaitReason | None:
        """Give the head of a flow its seat and blocks; or say why not, and change nothing."""
        split = self._policy.interleave.split(budget, len(draft.decodes))
        if self._backlog_before(head, draft) >= split.prefill_tokens:
            return split.prefill_limit
        if head.request.id in draft.preempted:
            return WaitReason.PREEMPTION
        if not self._seat_for(head):
            return WaitReason.MAX_NUM_SEQS
        hit = self._kv.lookup(head)
        upto = self._policy.reserve.tokens(head)
        victims = self._victims_for(head, hit, upto, draft)
        if isinstance(victims, WaitReason):
            return victims
        for victim in victims:
            if victim.num_remaining_tokens == 1:
                draft.decodes.remove(victim)
            else:
                draft.backlog -= victim.num_remaining_tokens
            self._preempt(victim, head, draft, now)
        keep_free = self._config.watermark_blocks if self._running else 0
        opened = self._kv.open(head, hit, upto=upto, keep_free=keep_free)
        assert opened
        self._waiting.remove(flow, head)
        self._emit(Scheduled(now, self._step, head.request.id, hit.num_tokens, head.num_preemptions > 0))
        head.move_to(_RUNNING)
        head.num_computed_tokens = hit.num_tokens
        if head.num_preemptions == 0:
            head.num_cached_tokens = hit.num_tokens
        insort(self._running, head, key=_by_key)
        draft.entered.append(Entry(head.request, tuple(head.token_ids), hit.num_tokens))
        draft.num_cached_tokens += hit.num_tokens
        draft.backlog += head.num_remaining_tokens
        return None

    def _backlog_before(self, head: RequestState, draft: Draft) -> int:
        """Tokens that running prefills get before `head` would: a long prompt behind it must not keep it out."""
        backlog = draft.backlog
        for state in reversed(self._running):
            if state.key < head.key:
                break
            if state.num_remaining_tokens > 1:  # a decode is not in the backlog
                backlog -= state.num_remaining_tokens
        return backlog

    def _seat_for(self, head: RequestState) -> bool:
        """Whether a seat is free, or could be taken from the back. Asked first because a lookup costs more."""
        running = self._running
        return len(running) < self._config.max_num_seqs or self._policy.order.displaces(
            head.request, running[-1].request
        )

    def _victims_for(
        self, head: RequestState, hit: PrefixHit, upto: int, draft: Draft
    ) -> list[RequestState] | WaitReason:
        """The fewest running requests, from the back, that must go for `head` to fit; or why it cannot.

        Who entered in this step, from another flow, is never a victim: that would un-plan it.
        """
        entered = [entry.request for entry in draft.entered]
        victims: list[RequestState] = []
        candidates = reversed(self._running)
        while True:
            num_left = len(self._running) - len(victims)
            keep_free = self._config.watermark_blocks if num_left else 0
            seat = num_left < self._config.max_num_seqs
            ids = [victim.request.id for victim in victims]
            if seat and self._kv.could_open(hit, upto=upto, keep_free=keep_free, without=ids):
                return victims
            victim = next(candidates, None)
            if (
                victim is None
                or not self._policy.order.displaces(head.request, victim.request)
                or victim.request in entered
            ):
                return WaitReason.KV if seat else WaitReason.MAX_NUM_SEQS
            victims.append(victim)

    # ---- applying what came of it ----------------------------------------------------------------------------------

    def update(self, plan: StepPlan, outcome: StepOutcome, *, now: float) -> list[RequestOutput]:
        """Apply a step. Requests that ended between `schedule` and now are passed over."""
        kv, states, block_size = self._kv, self._states, self._kv.block_size
        outputs: list[RequestOutput] = []
        for chunk in plan.chunks:
            request_id, start, token_ids, _, samples = chunk
            state = states.get(request_id)
            if state is None or state.status is not _RUNNING or state.num_computed_tokens != start:
                continue
            computed = start + len(token_ids)
            state.num_computed_tokens = computed
            if computed // block_size != start // block_size:
                kv.publish(state)
            if samples:
                outputs.append(self._take_token(state, start, outcome, now))
            elif new := _new_prompt_logprobs(state, start, outcome):
                outputs.append(RequestOutput(request_id, (), prompt_logprobs=new))
        return outputs

    def _take_token(self, state: RequestState, start: int, outcome: StepOutcome, now: float) -> RequestOutput:
        request, token_ids = state.request, state.token_ids
        token_id = outcome.sampled[request.id]
        token_ids.append(token_id)
        num_output = len(token_ids) - len(request.prompt_token_ids)
        if num_output == 1:
            self._emit(FirstToken(now, self._step, request.id))
        stopped = token_id in state.stop_token_ids and num_output >= request.sampling.min_tokens
        reason: FinishReason | None = None
        if stopped:
            reason = FinishReason.STOP
        elif num_output >= request.sampling.max_tokens:
            reason = FinishReason.LENGTH
        if reason is not None:
            self._leave(state)
            self._end(state, reason, now)
        elif not (num_output == 1 or outcome.logprobs or outcome.prompt_logprobs):
            return RequestOutput(request.id, (token_id,))  # nearly always: spares 0.5 us per running request
        return RequestOutput(
            request.id,
            (token_id,),
            reason,
            token_id if stopped else None,
            outcome.logprobs.get(request.id),
            _new_prompt_logprobs(state, start, outcome),
            state.num_cached_tokens,
        )

    # ---- looking in ------------------------------------------------------------------------------------------------

    def states(self) -> Iterator[RequestState]:
        """Every live request. For tests and for people; do not write to them."""
        return iter(self._states.values())

    def running(self) -> Sequence[RequestState]:
        """Running requests, most deserving first."""
        return tuple(self._running)

    def check(self) -> None:
        """Re-derive and compare everything. O(everything)."""
        assert self._running == sorted(self._running, key=_by_key)
        assert all(state.status is _RUNNING for state in self._running)
        waiting = list(self._waiting)
        assert all(state.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED) for state in waiting)
        assert len(waiting) == len(self._waiting)
        assert {s.request.id for s in (*waiting, *self._running)} == set(self._states)
        assert len(self._running) <= self._config.max_num_seqs
        for state in self._states.values():
            assert state.num_computed_tokens < state.num_tokens
        self._kv.check(self._running)
