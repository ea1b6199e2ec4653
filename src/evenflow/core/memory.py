"""First pass of a step, memory: each running request, front to back, gets the block that its next token needs.

If there is none, the request at the back of the order loses its own, again and again, until it fits; at the latest it
is itself the victim. A class within its guarantee is passed over, and a class at its maximum pays for its own growth.
"""

from evenflow.core.draft import Draft
from evenflow.core.house import House
from evenflow.core.request import RequestState


def secure_memory(house: House, draft: Draft, now: float) -> None:
    """Fills `draft.decodes` and `draft.prefills`. Whoever grows has `num_tokens` slots afterwards."""
    running, tables, add_decode = house.running, house.kv.tables, draft.decodes.append
    index = 0
    while index < len(running):  # victims leave from the end, at or after `index`
        state = running[index]
        num_tokens = len(state.token_ids)
        if num_tokens > tables[state.request.id].capacity and not _grow(house, index, draft, now):
            continue
        if num_tokens - state.num_computed_tokens == 1:
            add_decode(state)
        else:
            draft.prefills.append(state)
        index += 1


def _grow(house: House, index: int, draft: Draft, now: float) -> bool:
    """False if it had to give way itself."""
    state = house.running[index]
    mine = house.policy.classes.of(state.place.service_class)
    needed = house.kv.blocks_for(state.num_tokens) - house.num_blocks(state)
    while True:
        at_maximum = mine.blocks + needed > mine.max_blocks
        if not at_maximum and house.kv.num_free_blocks - house.policy.classes.kept_blocks(mine, {}) >= needed:
            house.grow(state, num_blocks=needed)
            return True
        victim = _victim(house, index, own_class=at_maximum)
        house.preempt(victim, state, draft, now)
        if victim is state:
            return False


def _victim(house: House, index: int, *, own_class: bool) -> RequestState:
    running, classes = house.running, house.policy.classes
    mine = classes.of(running[index].place.service_class)
    for victim in reversed(running[index + 1 :]):
        theirs = classes.of(victim.place.service_class)
        if theirs is mine or (not own_class and theirs.blocks > theirs.guaranteed_blocks):
            return victim
    return running[index]
