"""Many steps at once, while nothing can change: everybody decodes, nobody comes in, and nobody lacks a block.

Then every step plans the same requests, a token each, and what a step leaves behind is known without taking it:

    tokens      one more each                      memory   a block when a table is full, published when a block is
    learned     one observation a step             others   the same doors, shut for the same reason

Blocks are taken and published in the order in which steps would have done it (growth when a step is planned, front to
back; publishing when it is applied), so that a pool after a leap is the pool after the steps, block by block. A leap
ends before the first step in which somebody would have to give way, and with the first in which somebody ends. Whoever
waits may wait on if what keeps the line out holds for as long as nobody leaves (`admission.lasting_door`).

For simulations, whose steps take no thinking but these. The same outcome to the bit is a property test's business.
"""

from array import array
from collections.abc import MutableSequence, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from evenflow.core.admission import lasting_door
from evenflow.core.house import House
from evenflow.core.learned import Learned
from evenflow.core.plan import Chunk, Door
from evenflow.core.request import RequestId, RequestState
from evenflow.core.step_time import StepWork

MOST_STEPS = 256
"""Fewer than the step-time model keeps before it looks at them."""

_work = partial(tuple.__new__, StepWork)  # of its fields, in a third of the time


class Steady(NamedTuple):
    """What the next steps are all like: at most so many, until somebody ends, and none may start at the `deadline` or
    after it.

    `decode_context` is the first one's; each has as many more as are `running`. `token_budget` is None where
    it may differ from step to step.
    """

    most_steps: int
    running: tuple[RequestState, ...]
    decode_context: int
    doors: tuple[Door, ...]
    token_budget: int | None
    deadline: float | None

    @property
    def request_ids(self) -> tuple[RequestId, ...]:
        return tuple([state.request.id for state in self.running])


def steady(house: House) -> Steady | None:
    """None unless the next step, and those after it, are surely alike."""
    running, policy = house.running, house.policy
    num_decodes = len(running)
    budget = policy.budget.least(num_decodes)
    if not num_decodes or budget < num_decodes:
        return None
    doors: tuple[Door, ...] = ()
    if house.line.num_waiting:
        # Tenants take turns by what each was served: another head in every step.
        door = lasting_door(house, budget) if policy.spec.fairness == "none" else None
        if door is None:
            return None
        doors = (door,)
    context, left = 0, MOST_STEPS
    for state in reversed(running):  # whoever has just come in is at the back, and is the one that still prefills
        num_tokens = len(state.token_ids)
        if num_tokens - state.num_computed_tokens != 1 or num_tokens == state.num_prompt_tokens or state.stop_token_ids:
            return None
        rest = state.max_num_tokens - num_tokens
        if rest < left:
            left = rest
        context += num_tokens
    is_fixed = policy.spec.budget == "fixed"
    return Steady(left, tuple(running), context, doors, budget if is_fixed else None, house.newcomers.first_deadline)


def advance(house: House, learned: Learned, what: Steady, starts: Sequence[float], ends: Sequence[float]) -> list[int]:
    """Take as many of these steps as memory allows; the blocks that each took. Fewer steps than asked for, or none, if
    somebody would have to give way. Every token is 0, as the simulated executor's are.

    Who has its last token then still has its seat: it is the caller's to end (`last_ones`).
    """
    running, most = house.running, len(ends)
    _add_zeros(running, most)
    grown = _memory(house, most)
    num_steps = len(grown)
    for state in running:
        state.num_computed_tokens += num_steps
        if num_steps < most:
            del state.token_ids[num_steps - most :]
    if num_steps:
        house.step += num_steps
        house.left = []
        _learn(house, learned, what, starts[:num_steps], ends[:num_steps])
    return grown


def _add_zeros(running: Sequence[RequestState], count: int) -> None:
    """So many tokens to each. An array takes them from one of its kind in a fifth of the time that bytes take."""
    zeros = bytes(count)
    of_kind = {kind: array(kind, zeros * array(kind).itemsize) for kind in "Bq"}
    for state in running:
        token_ids: MutableSequence[int] = state.token_ids
        token_ids.extend(of_kind[token_ids.typecode] if isinstance(token_ids, array) else zeros)


def last_ones(house: House) -> list[RequestState]:
    """Those who have as many tokens as they asked for, in order. All was published before, and a block that is given
    back is none that another has yet to publish: so it is no matter that a step would do both for each in turn."""
    return [state for state in house.running if len(state.token_ids) >= state.max_num_tokens]


def _learn(house: House, learned: Learned, what: Steady, starts: Sequence[float], ends: Sequence[float]) -> None:
    num_decodes, context = len(what.running), what.decode_context
    observe = learned.step_time.observe
    for start, end in zip(starts, ends, strict=True):
        observe(_work((num_decodes, context, 0, 0)), end - start)
        context += num_decodes
    if house.line.num_waiting:
        for start in starts:
            learned.drain_rate.observe(start, 0, 0, backlogged=True)
    policy = house.policy
    if policy.spec.budget != "fixed":
        learned.step_time.is_fitted  # noqa: B018  # steps would have asked each time; the model keeps only so many
    if policy.spec.fairness != "none":
        chunks = [Chunk(request_id, 0, (), (), True) for request_id in what.request_ids]
        for _ in ends:
            policy.fairness.served(chunks)


def _memory(house: House, most_steps: int) -> list[int]:
    """Blocks grown in each step, up to the first step that lacks one."""
    kv, size, tables, publishes = house.kv, house.kv.block_size, house.kv.tables, house.kv.prefix_caching
    growing: dict[int, list[RequestState]] = {}
    publishing: dict[int, list[RequestState]] = {}
    for state in house.running:
        computed = state.num_computed_tokens
        if 0 < computed % size < size - most_steps:  # nothing happens to a table while its last block fills
            continue
        first = tables[state.request.id].capacity - computed
        if first < most_steps:
            for step in range(first, most_steps, size):
                growing.setdefault(step, []).append(state)
        first = size - 1 - computed % size
        if first < most_steps and publishes:
            for step in range(first, most_steps, size):
                publishing.setdefault(step, []).append(state)
    fit_all = _all_fit(house, list(chain.from_iterable(growing.values())))
    grown: list[int] = []
    previous = 0
    for step in sorted(growing.keys() | publishing.keys()):
        due = growing.get(step, ())
        if due and not (fit_all or _all_fit(house, due)):
            return [*grown, *[0] * (step - previous)]
        grown += [0] * (step - previous)
        if due:
            kv.grow_each([state.request.id for state in due])
            for state in due:
                house.policy.classes.of(state.place.service_class).blocks += 1
        grown.append(len(due))
        kv.publish_next(publishing.get(step, ()))
        previous = step + 1
    return grown + [0] * (most_steps - previous)


def _all_fit(house: House, due: Sequence[RequestState]) -> bool:
    """As `memory.py` asks for each in turn, asked for all of them at once, and so a little more carefully."""
    classes, free = house.policy.classes, house.kv.num_free_blocks - len(due)
    names = {state.place.service_class for state in due}
    for name in names:
        mine = classes.of(name)
        if mine.blocks + len(due) > mine.max_blocks or free < classes.kept_blocks(mine, {}):
            return False
    return True
