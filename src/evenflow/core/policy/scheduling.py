"""A policy at work: the pieces that a spec named, and the few questions that need more than one of them."""

from dataclasses import dataclass, field

from evenflow.core.policy.bound import Bound, Limits
from evenflow.core.policy.budget import BudgetController
from evenflow.core.policy.classes import ServiceClasses
from evenflow.core.policy.fairness import Fairness
from evenflow.core.policy.interleave import Interleave
from evenflow.core.policy.long_prompts import LongPrompts
from evenflow.core.policy.order import Order
from evenflow.core.policy.preemption import PreemptionChoice
from evenflow.core.policy.reserve import Reserve
from evenflow.core.policy.spec import PolicySpec
from evenflow.core.request import OrderKey, Place, Request, RequestState

_LONG = "+long"


@dataclass(frozen=True, slots=True)
class SchedulingPolicy:
    """`splits_prompts`: a prompt may be fed over several steps. `is_static`: a batch ends before the next begins.

    `places` are those of no tenant's that came up, each once.
    """

    spec: PolicySpec
    limits: Limits
    order: Order
    fairness: Fairness
    interleave: Interleave
    budget: BudgetController
    long_prompts: LongPrompts
    reserve: Reserve
    preemption: PreemptionChoice
    classes: ServiceClasses
    splits_prompts: bool
    is_static: bool
    places: dict[Place, Place] = field(default_factory=dict, repr=False, compare=False)

    def place_of(self, request: Request) -> Place:
        service_class = self.classes.of(request.service_class).name
        is_long = self.long_prompts.is_long(request)
        lane = service_class + _LONG if is_long else service_class
        place = Place(service_class, lane, self.fairness.flow_of(lane, request), is_long)
        # A handful of them where tenants do not count: 100 bytes less for each request that waits.
        return self.places.setdefault(place, place) if place.flow == lane else place

    def key_of(self, request: Request, accepted: float) -> OrderKey:
        """Its place in the one total order: rank, then what the order piece says, then the order of acceptance."""
        return (self.classes.of(request.service_class).rank, *self.order.key(request), accepted)

    def displaces(self, waiting: RequestState, running: RequestState) -> bool:
        """Whether `waiting` may take the seat and blocks of `running`. Implies a smaller key."""
        mine, theirs = waiting.key[0], running.key[0]
        return mine < theirs or (mine == theirs and self.order.displaces(waiting.request, running.request))

    def _progress(self, tokens: int) -> Bound:
        if not tokens:
            sentence = "None: as many decodes as a step has tokens may keep prefills waiting."
        elif self.splits_prompts:
            sentence = f"A step with prefill work feeds at least {tokens} prefill tokens, or all that there are."
        else:
            tokens, sentence = 1, "A step with prefill work feeds the first prompt in line, or what fits of it."
        return Bound("prefill_tokens_per_step", tokens or None, "tokens", sentence)

    def bounds(self) -> tuple[Bound, ...]:
        """What this policy promises; every one holds for every run, and the tests check it against the log."""
        limits, spec = self.limits, self.spec
        # One of the seats is the prefill's.
        progress = min(self.interleave.guaranteed_prefill(self.budget.least(n), n) for n in range(limits.max_num_seqs))
        passed_by = Bound(
            "passed_by",
            spec.max_backfill,
            "requests",
            f"A request that does not fit is passed by at most {spec.max_backfill} others of its flow while it waits.",
        )
        return (
            *self.order.bounds(),
            *self.fairness.bounds(limits),
            *self.interleave.bounds(limits, self.budget.least),
            self._progress(progress),
            *self.budget.bounds(limits),
            *self.long_prompts.bounds(limits, progress),
            *self.reserve.bounds(),
            passed_by,
            *self.classes.bounds(),
        )
