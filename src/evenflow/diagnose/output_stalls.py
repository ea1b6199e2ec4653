"""Output stalls because a long prefill takes the whole iteration, and every stream in it waits for its end."""

from collections import Counter

from evenflow.core.request import RequestId
from evenflow.diagnose.finding import Finding, examples, settings
from evenflow.diagnose.run_view import Run, seconds, tokens, worst_steps

_TIMES_A_DECODE_STEP = 3.0
_PREFILL_SHARE = 0.5
_LEAST_SHARE_OF_TOKENS = 0.01  # then P99 of the ITL shows it


def output_stalls(run: Run) -> Finding | None:
    usual = run.decode_seconds()
    if usual is None:
        return None
    stalls = [
        step
        for step in run.steps
        if step.decode_tokens
        and step.prefill_tokens >= _PREFILL_SHARE * tokens(step)
        and seconds(step) >= _TIMES_A_DECODE_STEP * usual
    ]
    # A running stream's token of a stalled step came late; a newcomer's first token is no gap.
    late = sum(step.decode_tokens for step in stalls)
    given = sum(step.decode_tokens for step in run.steps)
    if not given or late < _LEAST_SHARE_OF_TOKENS * given:
        return None
    budget = run.budget_for(2 * usual)
    if budget is None or budget >= run.token_budget:
        return None
    prompts = Counter[RequestId]()
    for step in stalls:
        prompts.update({request_id: num for request_id, num in step.scheduled if num > 1})
    worst = max(seconds(step) for step in stalls)
    return Finding(
        "output stalls",
        f"{late / given:.1%} of streamed tokens came out of steps that prefills filled and that took up to "
        f"{worst / usual:.1f} times a step of decodes ({worst * 1e3:.0f} ms, not {usual * 1e3:.0f} ms)",
        {
            "share of streamed tokens that stalled": late / given,
            "seconds of a decode step": usual,
            "seconds of the longest stall": worst,
        },
        (
            settings(
                "by this run's steps, so many tokens keep a step within twice a step of decodes",
                max_num_batched_tokens=budget,
            ),
        ),
        steps=worst_steps(stalls),
        num_steps=len(stalls),
        requests=examples([request_id for request_id, _ in prompts.most_common()]),
        num_requests=len(prompts),
    )
