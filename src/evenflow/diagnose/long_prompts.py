"""Long prompts crowd short ones: the short wait while a long one's chunks fill step after step."""

import numpy as np

from evenflow.diagnose.finding import Finding, examples, settings
from evenflow.diagnose.run_view import Run, TimeWithin, worst_steps

_TIMES_THE_MEDIAN = 4.0
_LEAST_LONG_TOKENS = 256
_SHARE_OF_PREFILL = 0.5
_LEAST_SHARE_OF_TTFT = 0.25


def long_prompts(run: Run) -> Finding | None:
    if run.settings.get("long_prompts") == "limited" or not run.spans:
        return None
    median = float(np.median([span.num_prompt_tokens for span in run.spans]))
    limit = max(_LEAST_LONG_TOKENS, round(_TIMES_THE_MEDIAN * median))
    long = {span.request_id: span for span in run.spans if span.num_prompt_tokens > limit}
    short = [
        span for span in run.first_tokens if span.num_prompt_tokens <= limit and span.first_scheduled_time is not None
    ]
    crowded = [
        step
        for step in run.steps
        if step.waiting
        and step.prefill_tokens
        and sum(num for request_id, num in step.scheduled if num > 1 and request_id in long)
        >= _SHARE_OF_PREFILL * step.prefill_tokens
    ]
    if not crowded or not short:
        return None
    within = TimeWithin(crowded)
    waits = [(within.between(s.accepted_time, s.first_scheduled_time or 0.0), s.request_id) for s in short]
    waited, ttft = sum(seconds for seconds, _ in waits), sum(span.ttft_seconds or 0.0 for span in short)
    if waited < _LEAST_SHARE_OF_TTFT * ttft:
        return None
    slowed = [request_id for seconds, request_id in sorted(waits, key=lambda each: -each[0]) if seconds > 0.0]
    return Finding(
        "long prompts crowd short ones",
        f"{len(short)} prompts of up to {limit} tokens spent {waited / ttft:.0%} of their TTFT in the queue "
        f"while {len(long)} longer ones took most of the prefill",
        {
            "share of short prompts' TTFT": waited / ttft,
            "long prompts": len(long),
            "long is more than": limit,
        },
        (
            settings(
                "one long prompt at a time, with half of a step's prefill while others want some",
                long_prompts="limited",
                long_prompt_tokens=limit,
            ),
        ),
        steps=worst_steps(crowded),
        num_steps=len(crowded),
        requests=examples(slowed),
        num_requests=len(slowed),
    )
