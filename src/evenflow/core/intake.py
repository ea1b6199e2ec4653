"""What is refused when it arrives: what could never run, what the queue has no room for, and what would come too late.

A full queue refuses the newcomer, unless a worse class has somebody in it who has not run: then the latest of the worst
class gives its place. The answer says when to come again, from the measured speed of the queue and the size of the
request. Speed is a guess, so a deadline is called hopeless only by what surely comes in first.
"""

from collections.abc import Sequence

from evenflow.core.config import SchedulerConfig
from evenflow.core.errors import ContextOverflow, DeadlineTooSoon, InvalidRequest, QueueFull
from evenflow.core.house import House
from evenflow.core.learned import Learned
from evenflow.core.policy.scheduling import SchedulingPolicy
from evenflow.core.policy.spelling import nearest
from evenflow.core.request import Request, RequestState

_UNKNOWN_RETRY_SECONDS = 1.0


def refuse_what_cannot_run(request: Request, config: SchedulerConfig, policy: SchedulingPolicy) -> None:
    """Raises `InvalidRequest` for what could not run even alone."""
    vocab_size = config.vocab_size
    for name, ids in (
        ("prompt", request.prompt_token_ids),
        ("logit_bias", [token_id for token_id, _ in request.sampling.logit_bias]),
    ):
        if ids and not _within(ids, vocab_size):
            raise InvalidRequest(f"{name} has a token id outside 0..{vocab_size - 1}", param=name)
    if request.service_class not in policy.classes:
        known = [each.name for each in policy.classes]
        raise InvalidRequest(
            f"there is no service class {request.service_class!r}; use {nearest(request.service_class, known)}",
            param="service_class",
        )
    total = len(request.prompt_token_ids) + request.sampling.max_tokens
    limit = most_tokens(request, config, policy)
    if total > limit:
        raise ContextOverflow(
            f"prompt of {len(request.prompt_token_ids)} tokens plus max_tokens {request.sampling.max_tokens} is "
            f"{total}, more than the context of {limit} tokens; shorten the prompt or lower max_tokens",
            param="max_tokens",
        )


def _within(ids: Sequence[int], vocab_size: int) -> bool:
    if type(ids) is range:  # a simulated prompt that is a mere length: its numbers stand for nothing
        return True
    return 0 <= min(ids) <= max(ids) < vocab_size


def most_tokens(request: Request, config: SchedulerConfig, policy: SchedulingPolicy) -> int:
    """Prompt and output of a request of this class; the last token is returned, never fed, so it needs no slot."""
    classes = policy.classes
    blocks = classes.most_blocks(classes.of(request.service_class))
    return min(config.max_model_len, blocks * policy.limits.block_size + 1)


def refuse_what_comes_too_late(state: RequestState, house: House, learned: Learned, now: float) -> None:
    """Raises `DeadlineTooSoon`."""
    deadline = state.request.ttft_deadline
    if deadline is None:
        return
    seconds = 0.0
    if house.policy.spec.refuse_late:
        ahead = house.newcomers.tokens_ahead_of(state)
        seconds = learned.drain_rate.seconds_for(0, ahead) or 0.0
    if now + seconds >= deadline:
        raise DeadlineTooSoon(
            f"its first token would come in about {seconds:.3g} s, and its deadline is in {deadline - now:.3g} s; "
            "give it more time, or send it when the queue is shorter",
            param="ttft_deadline",
        )


def room_in_queue(state: RequestState, house: House, learned: Learned) -> list[RequestState]:
    """Whom to shed so that the queue has room; raises `QueueFull` if that would not do."""
    spec, new = house.policy.spec, house.newcomers
    num_prompt = state.num_prompt_tokens
    mine = next(each for each in spec.classes if each.name == state.place.service_class)
    waiting = new.of_class(mine.name)
    over = _overflow(waiting, num_prompt, mine.max_waiting_requests, mine.max_waiting_tokens)
    if over is not None:
        raise _full(f"the queue of class {mine.name} is full", over, learned)
    num_requests, num_tokens = new.num_requests, new.num_tokens
    candidates = new.to_shed_for(state.key[0])
    shed: list[RequestState] = []
    while True:
        over = _overflow((num_requests, num_tokens), num_prompt, spec.max_waiting_requests, spec.max_waiting_tokens)
        if over is None:
            return shed
        victim = next(candidates, None)
        if victim is None:
            raise _full("the queue is full", over, learned)
        shed.append(victim)
        num_requests -= 1
        num_tokens -= victim.num_prompt_tokens


def _overflow(
    waiting: tuple[int, int], num_prompt: int, max_requests: int | None, max_tokens: int | None
) -> tuple[int, int] | None:
    """Requests and tokens that must leave first; None if there is room. An empty queue takes any one request."""
    num_requests, num_tokens = waiting
    if not num_requests:
        return None
    over_requests = 0 if max_requests is None else num_requests + 1 - max_requests
    over_tokens = 0 if max_tokens is None else num_tokens + num_prompt - max_tokens
    if over_requests <= 0 and over_tokens <= 0:
        return None
    return max(0, over_requests), max(0, min(over_tokens, num_tokens))


def _full(what: str, over: tuple[int, int], learned: Learned) -> QueueFull:
    seconds = learned.drain_rate.seconds_for(*over)
    retry = _UNKNOWN_RETRY_SECONDS if seconds is None else seconds
    return QueueFull(f"{what}; try again in about {retry:.3g} s", retry_after_seconds=retry)


def retry_after(state: RequestState, learned: Learned) -> float:
    """For a request that was shed: until as much as itself has left the queue."""
    return learned.drain_rate.seconds_for(1, state.num_prompt_tokens) or _UNKNOWN_RETRY_SECONDS
