"""The step's budget is too large for the ITL target: decodes alone meet it, steps with prefills do not."""

from evenflow.diagnose.finding import Finding, settings
from evenflow.diagnose.run_view import Run, seconds, worst_steps

_LEAST_SHARE_OF_TOKENS = 0.01  # then P99 of the ITL misses the target


def budget_above_target(run: Run) -> Finding | None:
    target, usual = run.itl_target, run.decode_seconds()
    if target is None or usual is None or usual > target:
        return None
    late = [step for step in run.steps if step.decode_tokens and step.prefill_tokens and seconds(step) > target]
    missed, given = (sum(step.decode_tokens for step in steps) for steps in (late, run.steps))
    if not given or missed < _LEAST_SHARE_OF_TOKENS * given:
        return None
    budget = run.budget_for(target)
    changes = [
        settings(
            "steps as long as the target allows, by what they take on this machine",
            budget="itl-target",
            itl_target=target,
        )
    ]
    if budget is not None and budget < run.token_budget:
        because = "by this run's steps, so many tokens keep a step within the target"
        changes.insert(0, settings(because, max_num_batched_tokens=budget))
    return Finding(
        "budget above the ITL target",
        f"{missed / given:.1%} of streamed tokens came from steps with prefills that took over {target * 1e3:.0f} ms; "
        f"steps of decodes take {usual * 1e3:.0f} ms",
        {
            "share of streamed tokens late": missed / given,
            "target in seconds": target,
            "seconds of a decode step": usual,
            "token budget": run.token_budget,
        },
        tuple(changes),
        steps=worst_steps(late),
        num_steps=len(late),
    )
