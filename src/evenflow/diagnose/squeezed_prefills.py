"""TTFT grows with load because decodes take the step's tokens: prefills wait for what they leave."""

from evenflow.core.plan import WaitReason
from evenflow.diagnose.finding import Finding, examples, settings
from evenflow.diagnose.run_view import Run, shut_by, worst_steps

_LEAST_SHARE_OF_TTFT = 0.25
_LEAST_SHARE_OF_BUDGET = 0.5
_REASONS = (WaitReason.BUDGET, WaitReason.DECODE_SHARE, WaitReason.PREFILL_SHARE)


def squeezed_prefills(run: Run) -> Finding | None:
    total, waits = 0.0, []
    for span in run.first_tokens:
        waited = sum(span.queue_by_reason.get(reason.value, 0.0) for reason in _REASONS)
        total += span.ttft_seconds or 0.0
        waits.append((waited, span.request_id))
    steps = [step for step in run.steps if shut_by(step, *_REASONS)]
    if not steps or total <= 0.0:
        return None
    share = sum(waited for waited, _ in waits) / total
    budget = sum(step.token_budget for step in steps)
    decodes = sum(step.decode_tokens for step in steps) / budget
    if share < _LEAST_SHARE_OF_TTFT or decodes < _LEAST_SHARE_OF_BUDGET:
        return None
    longest = [request_id for waited, request_id in sorted(waits, key=lambda each: -each[0]) if waited > 0.0]
    return Finding(
        "squeezed prefills",
        f"requests spent {share:.0%} of their time to first token waiting for step tokens, of which decodes took "
        f"{decodes:.0%} while they waited",
        {
            "share of TTFT spent waiting for tokens": share,
            "share of the budget that decodes took": decodes,
            "token budget": run.token_budget,
        },
        (
            settings(
                "twice the tokens in a step leave prefills the room that decodes take now",
                max_num_batched_tokens=2 * run.token_budget,
            ),
            settings(
                "a share of every step is the prefills', and decodes take turns in the rest",
                interleave="shared",
                min_prefill_share=0.25,
            ),
        ),
        steps=worst_steps(steps),
        num_steps=len(steps),
        requests=examples(longest),
        num_requests=len(longest),
    )
