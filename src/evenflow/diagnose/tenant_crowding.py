"""One tenant crowds the others: it has most of the work, and those who ask for little wait as long as it does."""

from collections import defaultdict

from evenflow.diagnose.finding import Finding, examples, settings
from evenflow.diagnose.run_view import Run
from evenflow.observe.spans import RequestSpan

_SHARE_OF_TOKENS = 0.5
_LEAST_SHARE_OF_TTFT = 0.25
_WAIT_LIKE_IT = 0.5


def tenant_crowding(run: Run) -> Finding | None:
    by_tenant: defaultdict[str, list[RequestSpan]] = defaultdict(list)
    for span in run.first_tokens:
        by_tenant[span.tenant].append(span)
    if len(by_tenant) < 2 or run.settings.get("fairness") == "vtc":
        return None
    work = {
        tenant: sum(s.num_prompt_tokens - s.num_cached_tokens + len(s.token_times) for s in spans)
        for tenant, spans in by_tenant.items()
    }
    largest = max(work, key=work.__getitem__)
    share = work[largest] / max(1, sum(work.values()))
    others = [span for tenant, spans in by_tenant.items() if tenant != largest for span in spans]
    wait_of_others, its_wait = _mean_queue(others), _mean_queue(by_tenant[largest])
    ttft = sum(span.ttft_seconds or 0.0 for span in others) / len(others)
    if (
        share < _SHARE_OF_TOKENS
        or wait_of_others < _LEAST_SHARE_OF_TTFT * ttft
        or wait_of_others < _WAIT_LIKE_IT * its_wait
    ):
        return None
    waiting = [s for s in sorted(others, key=lambda s: (-(s.queue_seconds or 0.0), s.request_id)) if s.queue_seconds]
    return Finding(
        "one tenant crowds the others",
        f"tenant {largest!r} has {share:.0%} of the tokens; requests of other tenants wait "
        f"{wait_of_others:.3g} s on average, its own {its_wait:.3g} s",
        {
            "share of tokens": share,
            "mean queue seconds of the others": wait_of_others,
            "mean queue seconds of the tenant": its_wait,
        },
        (settings("tenants get equal service, so one's queue is not the others'", fairness="vtc"),),
        requests=examples([span.request_id for span in waiting]),
        num_requests=len(waiting),
    )


def _mean_queue(spans: list[RequestSpan]) -> float:
    return sum(span.queue_seconds or 0.0 for span in spans) / len(spans)
