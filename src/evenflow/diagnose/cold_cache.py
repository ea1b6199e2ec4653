"""The prefix cache was cold at the beginning: the first requests computed what later ones found, and their figures are
about another server."""

from collections.abc import Sequence

from evenflow.core.request import RequestId
from evenflow.diagnose.finding import Finding, examples, settings
from evenflow.diagnose.run_view import Run

_LEAST_REQUESTS = 50
_BEGINNING = 0.1
_LEAST_LATER_RATE = 0.2

Lookup = tuple[float, RequestId, int, int]
"""When a request arrived, its name, its prompt tokens, and how many of them the cache had."""


def cold_cache(run: Run) -> Finding | None:
    begin = min((span.arrival_time for span in run.spans), default=0.0)
    return cold_cache_of(
        [
            (span.arrival_time - begin, span.request_id, span.num_prompt_tokens, span.num_cached_tokens)
            for span in run.spans
            if span.first_scheduled_time is not None
        ]
    )


def cold_cache_of(lookups: Sequence[Lookup]) -> Finding | None:
    if len(lookups) < _LEAST_REQUESTS:
        return None
    in_order = sorted(lookups)
    first = in_order[: round(_BEGINNING * len(in_order))]
    rest = in_order[len(first) :]
    cold, warm = _rate(first), _rate(rest)
    if warm < _LEAST_LATER_RATE or cold > warm / 2:
        return None
    seconds = max(1, round(rest[0][0] + 0.5))
    return Finding(
        "cold prefix cache",
        f"the first {len(first)} requests found {cold:.0%} of their prompts in the prefix cache, the others {warm:.0%}",
        {"hit rate at first": cold, "hit rate later": warm, "requests at first": len(first)},
        (settings("leave the beginning out of the figures", of="replay", warm_up=seconds),),
        requests=examples([request_id for _, request_id, _, _ in first]),
        num_requests=len(first),
    )


def _rate(lookups: Sequence[Lookup]) -> float:
    return sum(cached for *_, cached in lookups) / max(1, sum(num for _, _, num, _ in lookups))
