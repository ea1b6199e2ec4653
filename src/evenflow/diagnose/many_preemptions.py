"""Many preemptions: more run than memory can carry to their end.

First fewer at once, then smaller steps (newcomers take memory more slowly), or more memory; what each removes, a
what-if tells.
"""

from math import ceil

from evenflow.diagnose.finding import Change, Finding, examples, settings
from evenflow.diagnose.run_view import Run, worst_steps

_LEAST_SHARE = 0.05
_LEAST_COUNT = 3


def many_preemptions(run: Run) -> Finding | None:
    victims = sorted((s for s in run.spans if s.num_preemptions), key=lambda s: (-s.num_lost_tokens, s.request_id))
    if len(victims) < max(_LEAST_COUNT, _LEAST_SHARE * len(run.spans)):
        return None
    steps = [step for step in run.steps if step.preemptions]
    if not steps:
        return None
    fed = sum(step.prefill_tokens + step.decode_tokens for step in run.steps)
    again = sum(span.num_recomputed_tokens for span in run.spans)
    count = sum(span.num_preemptions for span in run.spans)
    return Finding(
        "many preemptions",
        f"{len(victims)} of {len(run.spans)} requests lost their seat, {count} times; {again / max(1, fed):.1%} of "
        "the computed tokens were computed again",
        {
            "share of requests preempted": len(victims) / len(run.spans),
            "preemptions": count,
            "share of tokens computed again": again / max(1, fed),
            "KV blocks": steps[-1].kv_blocks_total,
        },
        _changes(run),
        steps=worst_steps(steps),
        num_steps=len(steps),
        requests=examples([span.request_id for span in victims]),
        num_requests=len(victims),
    )


def _changes(run: Run) -> tuple[Change, ...]:
    steps = [step for step in run.steps if step.preemptions]
    # At other times more ran, but newcomers' contexts are short; the least is what was carried at full length.
    carried = max(1, int(min(step.running for step in steps) * 0.9))
    blocks = steps[-1].kv_blocks_total
    most = min(run.seats, max(step.running + step.waiting for step in run.steps))
    more = ceil(blocks * most / carried)
    changes = []
    if carried < run.seats:
        changes.append(settings("so many were carried at the worst time, less a tenth", max_num_seqs=carried))
    if run.token_budget > 32:
        half = run.token_budget // 2
        changes.append(settings("newcomers take memory half as fast", max_num_batched_tokens=half))
    room = (
        f"room for the {most} that would run at once: {more / blocks:.1f} times the --kv-memory (now {blocks} blocks)"
    )
    changes.append(settings(room, num_blocks=more))
    return tuple(changes)
