"""Which tokens of which requests run in this step.

`schedule` decides, `update` applies what came of it; nothing else changes a request. A step is decided in three passes
over one total order, and each pass only narrows what the next may do, so nothing is ever un-planned:

    1. memory   running requests, front to back: each that needs a block for its next token gets it, preempting from the
                back of the same order until it fits or is itself the victim (memory.py).
    2. seats    the heads of the waiting lanes come in if everything known of them fits above the watermark, a seat is
                free and some token of the budget would be left for them; one that cannot shuts a door (admission.py).
    3. tokens   the interleave piece splits the budget; it is handed out front to back (draft.py).

What is decided *how* is the policy's (policy/), which may be replaced between two steps. Three facts make "work exists
=> the plan is not empty" hold: the front running request can evict everyone behind it, an idle engine may use the
watermark, and `add` refuses what could not run alone.
"""

import json
from collections.abc import Iterator, Sequence
from functools import partial

from evenflow.core.admission import admit
from evenflow.core.config import SchedulerConfig
from evenflow.core.draft import Draft, hand_out_tokens
from evenflow.core.errors import DuplicateRequest, PolicyError, PolicyProblem, RequestError
from evenflow.core.events import Arrived, Finished, FirstToken, PolicyChanged, Rejected
from evenflow.core.house import House
from evenflow.core.intake import (
    most_tokens,
    refuse_what_cannot_run,
    refuse_what_comes_too_late,
    retry_after,
    room_in_queue,
)
from evenflow.core.kv_cache import KVCacheManager
from evenflow.core.leap import Steady, advance, last_ones, steady
from evenflow.core.learned import Learned
from evenflow.core.memory import secure_memory
from evenflow.core.plan import RequestOutput, StepOutcome, StepPlan, TokenLogprobs
from evenflow.core.policy.interleave import Demand
from evenflow.core.policy.registry import PIECES, Pieces, build_policy, limits_of
from evenflow.core.policy.scheduling import SchedulingPolicy
from evenflow.core.policy.spec import PolicySpec
from evenflow.core.policy.table import policy_to_table, printable
from evenflow.core.ports import EventSink
from evenflow.core.request import FinishReason, Request, RequestId, RequestState, RequestStatus
from evenflow.core.step_time import StepWork

_RUNNING = RequestStatus.RUNNING
_output = partial(tuple.__new__, RequestOutput)  # of its fields, in a third of the time


def _new_prompt_logprobs(state: RequestState, start: int, outcome: StepOutcome) -> tuple[TokenLogprobs, ...]:
    """What a chunk from `start` reports for the first time: a recompute after a preemption reports it all again."""
    entries = outcome.prompt_logprobs.get(state.request.id, ())
    known = state.num_prompt_logprobs
    state.num_prompt_logprobs = max(known, start + len(entries))
    return entries[max(0, known - start) :]


class Scheduler:
    """Raises `PolicyError` if the spec cannot be built. Where nobody `keeps_log`, no arrival is told (4 us), and a
    `Finished` says nothing of content (15 us for a long answer). Where nobody reads what a step gave, `gives_outputs`
    is false and `update` returns none (a quarter of its time)."""

    def __init__(
        self,
        config: SchedulerConfig,
        kv: KVCacheManager,
        spec: PolicySpec,
        emit: EventSink,
        *,
        pieces: Pieces = PIECES,
        keeps_log: bool = True,
        gives_outputs: bool = True,
    ) -> None:
        self._learned = Learned()
        self._pieces = pieces
        self._config = config
        self._kv = kv
        self._emit = emit
        self._keeps_log = keeps_log
        self._gives_outputs = gives_outputs
        self._house = House(config, kv, self._built(spec), emit)
        self._states: dict[RequestId, RequestState] = {}
        self._accepted = 0
        self._gaps: dict[RequestId, int] = {}  # decodes left out of the last step, and of how many in a row
        self._planned = (StepWork(0, 0, 0, 0), 0.0)  # the last step's work, and when it was planned

    def _built(self, spec: PolicySpec) -> SchedulingPolicy:
        limits = limits_of(spec, self._config, num_blocks=self._kv.num_blocks, block_size=self._kv.block_size)
        return build_policy(spec, limits, self._learned, self._pieces)

    @property
    def limits(self) -> tuple[tuple[str, int], ...]:
        """What decisions depend on besides the policy, by name."""
        config, kv = self._config, self._kv
        return (
            ("max_num_seqs", config.max_num_seqs),
            ("max_num_batched_tokens", config.max_num_batched_tokens),
            ("max_model_len", config.max_model_len),
            ("watermark_blocks", config.watermark_blocks),
            ("num_blocks", kv.num_blocks),
            ("block_size", kv.block_size),
            ("num_host_blocks", kv.num_host_blocks),
            ("prefix_caching", int(kv.prefix_caching)),
        )

    @property
    def has_work(self) -> bool:
        return bool(self._states)

    @property
    def step(self) -> int:
        """The number of the last step."""
        return self._house.step

    @property
    def num_running(self) -> int:
        return len(self._house.running)

    @property
    def num_waiting(self) -> int:
        return self._house.line.num_waiting

    def occupancy(self) -> tuple[int, int, int, int]:
        """Running, waiting, free blocks, free host blocks: what a step's record asks, in one call."""
        house = self._house
        return len(house.running), house.line.num_waiting, *self._kv.num_free()

    @property
    def kv(self) -> KVCacheManager:
        return self._kv

    @property
    def policy(self) -> SchedulingPolicy:
        """What holds now; `policy.spec` is how it was said, `policy.bounds()` what it promises."""
        return self._house.policy

    # ---- requests in and out ---------------------------------------------------------------------------------------

    def add(self, request: Request, *, now: float) -> list[RequestOutput]:
        """Queue a request; the last outputs of those that were shed to make room for it, nearly always none.

        Raises `RequestError`, and changes nothing, if it could not run even alone, if the queue is full, or if it would
        come too late.
        """
        house = self._house
        try:
            if request.id in self._states:
                raise DuplicateRequest(
                    f"request id {request.id!r} is already in use; send a new id", param="request_id"
                )
            refuse_what_cannot_run(request, self._config, house.policy)
            key = house.policy.key_of(request, self._accepted + 1)
            state = RequestState(request, key, house.policy.place_of(request))
            refuse_what_comes_too_late(state, house, self._learned, now)
            shed = room_in_queue(state, house, self._learned)
        except RequestError as error:
            self._emit(Rejected(now, request.id, error.message))
            raise
        self._accepted += 1
        ended = [self._end_waiting(victim, FinishReason.SHED, now) for victim in shed]
        self._states[request.id] = state
        house.wait(state)
        if self._keeps_log:
            self._emit(Arrived.of(state, now))
        return ended

    def finish(self, request_id: RequestId, reason: FinishReason, *, now: float) -> bool:
        """End a request from outside (abort, stop string). False if it is not live (it may just have ended)."""
        state = self._states.get(request_id)
        if state is None:
            return False
        if state.status is _RUNNING:
            self._house.leave(state)
        else:
            self._house.drop(state)
        self._end(state, reason, now)
        return True

    def expire(self, *, now: float) -> list[RequestOutput]:
        """End those whose TTFT deadline has come before they ran at all. To be called before each `schedule`."""
        newcomers, expired = self._house.newcomers, FinishReason.EXPIRED
        first = newcomers.first_deadline
        if first is None or now < first:
            return []
        return [self._end_waiting(each, expired, now) for each in newcomers.expired(now)]

    def _end_waiting(self, state: RequestState, reason: FinishReason, now: float) -> RequestOutput:
        self._house.stop_waiting(state)
        self._end(state, reason, now)
        wait = retry_after(state, self._learned) if reason is FinishReason.SHED else None
        return RequestOutput(state.request.id, (), reason, retry_after_seconds=wait)

    def _end(self, state: RequestState, reason: FinishReason, now: float) -> None:
        state.move_to(RequestStatus.FINISHED)
        state.finish_reason = reason
        del self._states[state.request.id]
        if not self._states:
            self._states.clear()  # a dict that was large stays so, empty or not, until it is told
        self._house.policy.fairness.ended(state.request.id)
        if reason in (FinishReason.STOP, FinishReason.LENGTH):
            self._learned.output_lengths.observe(state.place.service_class, state.num_output_tokens)
        self._emit(Finished.of(state, reason, self._house.step, now, content=self._keeps_log))

    def reconfigure(self, spec: PolicySpec, *, now: float) -> None:
        """Go by another policy from the next step on. Everybody keeps seat, blocks, tokens and order of acceptance.

        Raises `PolicyError`, and changes nothing, if the spec cannot be built or leaves no room for a live request.
        """
        house, old = self._house, self._house.policy
        policy = self._built(spec)
        problems = [*self._stranded(policy)]
        if problems:
            raise PolicyError(problems)
        moved = house.move_under(policy)
        policy.fairness.take_over(old.fairness, house.running)
        flows = tuple((state.request.id, state.place.flow) for state in moved)
        self._emit(PolicyChanged(now, house.step, printable(spec), flows, json.dumps(policy_to_table(spec))))

    def _stranded(self, policy: SchedulingPolicy) -> Iterator[PolicyProblem]:
        for state in self._states.values():
            total = state.max_num_tokens
            limit = most_tokens(state.request, self._config, policy)
            if total > limit:
                name = policy.classes.of(state.request.service_class).name
                share = (total - 1) / (self._kv.num_blocks * self._kv.block_size)
                reason = f"request {state.request.id!r} may come to {total} tokens, and no more than {limit} would fit"
                yield PolicyProblem(f"classes.{name}.max_kv", reason, f"{min(1.0, share):.3g} for it")

    # ---- deciding a step -------------------------------------------------------------------------------------------

    def schedule(self, *, now: float) -> StepPlan:
        house = self._house
        house.step += 1
        policy = house.policy
        draft = Draft()
        secure_memory(house, draft, now)
        budget = policy.budget.tokens(draft.decodes, draft.first_prefill_position)
        admit(house, draft, budget, now)
        if draft.preempted:  # perhaps decodes: fewer streams wait for this step
            budget = policy.budget.tokens(draft.decodes, draft.first_prefill_position)
        self._hand_out(draft, budget, now)
        left, house.left = tuple(house.left), []
        swap_out, swap_in = self._kv.take_copies()
        return StepPlan(
            step=house.step,
            chunks=tuple(draft.chunks),
            token_budget=budget,
            num_prefill_tokens=draft.num_prefill_tokens,
            num_decode_tokens=draft.num_decode_tokens,
            attended_context_tokens=draft.decode_context + draft.prefill_context,
            decode_context_tokens=draft.decode_context,
            num_cached_tokens=draft.num_cached_tokens,
            entered=tuple(draft.entered),
            left=left,
            preempted=tuple(draft.preempted),
            swap_out=swap_out,
            swap_in=swap_in,
            left_out=tuple(draft.left_out),
            doors=tuple(draft.doors),
        )

    def _hand_out(self, draft: Draft, budget: int, now: float) -> None:
        house, gaps, decodes = self._house, self._gaps, draft.decodes
        if gaps:
            decodes.sort(key=lambda state: -gaps.get(state.request.id, 0))
        interleave = house.policy.interleave
        split = interleave.split(Demand(budget, len(decodes), draft.backlog, house.running, draft.newcomers))
        num_served = hand_out_tokens(draft, split, house.policy, self._kv)
        if gaps or num_served < len(decodes):
            skipped = [state.request.id for state in decodes[num_served:]]
            self._gaps = {request_id: gaps.get(request_id, 0) + 1 for request_id in skipped}
            interleave.stepped(max(self._gaps.values(), default=0))
        num_tokens = draft.num_prefill_tokens + draft.num_decode_tokens
        work = StepWork(num_served, draft.decode_context, num_tokens - num_served, draft.prefill_context)
        self._planned = (work, now)
        if house.line.num_waiting or draft.entered:
            entered = sum([len(entry.token_ids) for entry in draft.entered])
            backlogged = house.line.num_waiting > 0
            self._learned.drain_rate.observe(now, len(draft.entered), entered, backlogged=backlogged)

    # ---- applying what came of it ----------------------------------------------------------------------------------

    def update(self, plan: StepPlan, outcome: StepOutcome, *, now: float) -> list[RequestOutput]:
        """Apply a step. Requests that ended between `schedule` and now are passed over."""
        kv, states, block_size = self._kv, self._states, self._kv.block_size
        work, planned_time = self._planned
        self._learned.step_time.observe(work, now - planned_time - outcome.swap_seconds)
        self._learned.copy_time.observe(len(plan.swap_out) + len(plan.swap_in), outcome.swap_seconds)
        self._house.policy.fairness.served(plan.chunks)
        outputs: list[RequestOutput] = []
        sampled, is_plain = outcome.sampled, not (outcome.logprobs or outcome.prompt_logprobs)
        gives_outputs = self._gives_outputs
        for request_id, start, fed, _, samples in plan.chunks:
            state = states.get(request_id)
            if state is None or state.status is not _RUNNING or state.num_computed_tokens != start:
                continue
            num_fed = len(fed)
            state.num_computed_tokens = computed = start + num_fed
            if computed % block_size < num_fed:  # the last of a block is among them
                kv.publish(state)
            if samples:
                token_id = sampled[request_id]
                is_within = state.num_prompt_tokens < computed < state.max_num_tokens - 1  # neither first nor last
                if is_plain and is_within and token_id not in state.stop_token_ids:
                    # Nearly always: spares a microsecond per running request.
                    state.token_ids.append(token_id)
                    if gives_outputs:
                        outputs.append(_output((request_id, (token_id,), None, None, None, (), 0, None)))
                else:
                    output = self._take_token(state, start, outcome, now)
                    if gives_outputs:
                        outputs.append(output)
            elif new := _new_prompt_logprobs(state, start, outcome):
                outputs.append(RequestOutput(request_id, (), prompt_logprobs=new))
        return outputs

    def _take_token(self, state: RequestState, start: int, outcome: StepOutcome, now: float) -> RequestOutput:
        request, token_ids = state.request, state.token_ids
        token_id = outcome.sampled[request.id]
        token_ids.append(token_id)
        num_output = len(token_ids) - state.num_prompt_tokens
        if num_output == 1:
            self._emit(FirstToken(now, self._house.step, request.id))
        stopped = token_id in state.stop_token_ids and num_output >= request.sampling.min_tokens
        reason: FinishReason | None = None
        if stopped:
            reason = FinishReason.STOP
        elif num_output >= request.sampling.max_tokens:
            reason = FinishReason.LENGTH
        if reason is not None:
            self._house.leave(state)
            self._end(state, reason, now)
        return RequestOutput(
            request.id,
            (token_id,),
            reason,
            token_id if stopped else None,
            outcome.logprobs.get(request.id),
            _new_prompt_logprobs(state, start, outcome),
            state.num_cached_tokens,
        )

    # ---- many at once, on a virtual clock --------------------------------------------------------------------------

    def steady(self) -> Steady | None:
        """What the coming steps are all like, if nothing comes; None if they may differ (leap.py)."""
        return None if self._gaps else steady(self._house)

    def leap(self, what: Steady, starts: Sequence[float], ends: Sequence[float]) -> list[int]:
        """Take those steps, as far as memory goes: the KV blocks that each of them took. Who has its last token then
        has ended, but gives no output."""
        grown = advance(self._house, self._learned, what, starts, ends)
        if len(grown) == what.most_steps:
            for state in last_ones(self._house):
                self._house.leave(state)
                self._end(state, FinishReason.LENGTH, ends[-1])
        return grown

    # ---- looking in ------------------------------------------------------------------------------------------------

    def states(self) -> Iterator[RequestState]:
        """Every live request. For tests and for people; do not write to them."""
        return iter(self._states.values())

    def running(self) -> Sequence[RequestState]:
        """Running requests, most deserving first."""
        return tuple(self._house.running)

    def check(self) -> None:
        """Re-derive and compare everything. O(everything)."""
        self._house.check()
        live = {state.request.id for state in (*self._house.line, *self._house.running)}
        assert live == set(self._states)
