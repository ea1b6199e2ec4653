"""The cap on running requests is too low: they wait for a seat while the step has tokens and the memory has room."""

from evenflow.core.plan import WaitReason
from evenflow.diagnose.finding import Finding, examples, settings
from evenflow.diagnose.run_view import Run, seconds, shut_by, tokens, worst_steps

_IDLE_BUDGET = 0.5
_FREE_KV = 0.2
_LEAST_SHARE_OF_TIME = 0.1


def too_few_seats(run: Run) -> Finding | None:
    full = [step for step in run.steps if shut_by(step, WaitReason.MAX_NUM_SEQS)]
    kv = max((step.kv_blocks_used / step.kv_blocks_total for step in full), default=0.0)
    if kv > 1 - _FREE_KV:  # at times the seats are what memory carries
        return None
    idle = [step for step in full if tokens(step) <= _IDLE_BUDGET * step.token_budget]
    busy = run.busy_seconds
    share = sum(map(seconds, idle)) / busy if busy else 0.0
    if share < _LEAST_SHARE_OF_TIME:
        return None
    used = sum(map(tokens, idle)) / sum(step.token_budget for step in idle)
    waiting = max(step.waiting for step in idle)
    seats = min(
        run.seats + waiting, 4 * run.seats, run.token_budget, int(run.seats * (1 - _FREE_KV / 2) / max(kv, 0.01))
    )
    if seats <= run.seats:
        return None
    reason = WaitReason.MAX_NUM_SEQS.value
    waits = sorted(((s.queue_by_reason.get(reason, 0.0), s.request_id) for s in run.spans), key=lambda each: -each[0])
    waited = [request_id for queue_seconds, request_id in waits if queue_seconds > 0.0]
    return Finding(
        "too few seats",
        f"in {share:.0%} of the time requests waited for a seat although steps used {used:.0%} of their tokens and "
        f"memory was at most {kv:.0%} full",
        {
            "share of time": share,
            "share of the budget used": used,
            "KV use at most": kv,
            "waiting at most": waiting,
            "seats": run.seats,
        },
        (settings("memory and tokens have room for so many", max_num_seqs=seats),),
        steps=worst_steps(idle),
        num_steps=len(idle),
        requests=examples(waited),
        num_requests=len(waited),
    )
