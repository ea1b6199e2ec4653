"""Many steps at once, while nothing can change: everybody decodes, nobody comes, ends, or lacks a block.

Then every step plans the same requests, a token each, and what a step leaves behind is known without taking it:

    tokens      one more each                      memory   a block when a table is full, published when a block is
    learned     one observation a step             others   the same doors, shut for the same reason

Blocks are taken and published in the order in which steps would have done it (growth when a step is planned, front to
back; publishing when it is applied), so that a pool after a leap is the pool after the steps, block by block. A leap
ends before the first step in which somebody would have to give way.

For simulations, whose steps take no thinking but these. The same outcome to the bit is a property test's business.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from evenflow.core.house import House
from evenflow.core.learned import Learned
from evenflow.core.plan import EVERYBODY, Chunk, Door, WaitReason
from evenflow.core.request import RequestId, RequestState
from evenflow.core.step_time import StepWork

MOST_STEPS = 256
"""Fewer than the step-time model keeps before it looks at them."""


@dataclass(frozen=True, slots=True)
class Steady:
    """What the next steps are all like: at most so many, and none may start at the `deadline` or after it.

    `decode_context` is the first one's; each has as many more as there are `request_ids`. `token_budget` is None where
    it may differ from step to step.
    """

    most_steps: int
    request_ids: tuple[RequestId, ...]
    decode_context: int
    doors: tuple[Door, ...]
    token_budget: int | None
    deadline: float | None


def steady(house: House, last_doors: Sequence[Door] | None) -> Steady | None:
    """None unless several steps to come are surely alike. `last_doors` are those of the last step, if nothing has come
    or gone since it was planned and all it had were decodes."""
    running, policy = house.running, house.policy
    num_decodes = len(running)
    if not num_decodes or policy.budget.least(num_decodes) < num_decodes:
        return None
    is_fixed = policy.spec.budget == "fixed"
    doors: tuple[Door, ...] = ()
    if house.line.num_waiting:
        if last_doors is None or not is_fixed or policy.spec.fairness != "none":
            return None
        doors = tuple(last_doors)
        if len(doors) != 1 or doors[0].flow != EVERYBODY or doors[0].reason not in _LASTING:
            return None
    context, left = 0, MOST_STEPS
    for state in running:
        request, num_tokens, num_computed = state.request, len(state.token_ids), state.num_computed_tokens
        num_output = num_tokens - len(request.prompt_token_ids)
        if num_output < 1 or num_tokens - num_computed != 1 or state.stop_token_ids:
            return None
        left = min(left, request.sampling.max_tokens - num_output - 1)
        context += num_tokens
    if left < 2:
        return None
    ids = tuple([state.request.id for state in running])
    budget = policy.budget.least(num_decodes) if is_fixed else None
    return Steady(left, ids, context, doors, budget, house.newcomers.first_deadline)


_LASTING = (WaitReason.MAX_NUM_SEQS, WaitReason.STATIC_BATCH)
"""They hold until somebody leaves. Who waits for memory might find more of its prefix cached meanwhile."""


def advance(house: House, learned: Learned, what: Steady, starts: Sequence[float], ends: Sequence[float]) -> list[int]:
    """Take as many of these steps as memory allows; the blocks that each took. Fewer steps than asked for, or none, if
    somebody would have to give way. Every token is 0, as the simulated executor's are."""
    running, most = house.running, len(ends)
    tokens = bytes(most)
    before = len(running[0].token_ids)
    for state in running:
        state.token_ids.extend(tokens)
    grown = _memory(house, most)
    num_steps = len(grown)
    for state in running:
        if num_steps < most:
            del state.token_ids[num_steps - most :]
        state.num_computed_tokens += num_steps
    assert len(running[0].token_ids) == before + num_steps
    house.step += num_steps
    _learn(house, learned, what, starts[:num_steps], ends[:num_steps])
    return grown


def _learn(house: House, learned: Learned, what: Steady, starts: Sequence[float], ends: Sequence[float]) -> None:
    num_decodes, context = len(what.request_ids), what.decode_context
    observe = learned.step_time.observe
    for start, end in zip(starts, ends, strict=True):
        observe(StepWork(num_decodes, context, 0, 0), end - start)
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
    kv, size = house.kv, house.kv.block_size
    growing: dict[int, list[RequestState]] = {}
    publishing: dict[int, list[tuple[RequestState, int]]] = {}
    for state in house.running:
        computed = state.num_computed_tokens
        for step in range(kv.table(state.request.id).capacity - computed, most_steps, size):
            growing.setdefault(step, []).append(state)
        if kv.prefix_caching:
            for step in range(size - 1 - computed % size, most_steps, size):
                publishing.setdefault(step, []).append((state, computed + step + 1))
    grown: list[int] = []
    previous = 0
    for step in sorted(growing.keys() | publishing.keys()):
        due = growing.get(step, ())
        if due and not _all_fit(house, due):
            return [*grown, *[0] * (step - previous)]
        grown += [0] * (step - previous)
        for state in due:
            kv.grow(state.request.id, upto=kv.table(state.request.id).capacity + 1)
            house.policy.classes.of(state.place.service_class).blocks += 1
        grown.append(len(due))
        for state, num_computed in publishing.get(step, ()):
            kv.publish_upto(state, num_computed)
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
