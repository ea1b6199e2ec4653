"""A story (story.py) as a page of text."""

from collections.abc import Iterator

from evenflow.core.plan import WaitReason
from evenflow.observe.story import Phase, Story
from evenflow.observe.summary import format_seconds
from evenflow.observe.waits import ITERATION, UNEXPLAINED

_SHARERS_NAMED = 4

# What a reader who does not know the scheduler needs to hear.
REASONS = {
    ITERATION: "the step that was running when it came",
    UNEXPLAINED: "no reason was logged",
    WaitReason.BUDGET.value: "the step's token budget was spent on others",
    WaitReason.MAX_NUM_SEQS.value: "every seat was taken (max_num_seqs)",
    WaitReason.KV.value: "not enough free KV blocks for all its tokens",
    WaitReason.PREEMPTION.value: "memory had just been short, nobody came in",
    WaitReason.LONG_PROMPT.value: "the limit for long prompts was reached",
    WaitReason.QUOTA.value: "the quota of its class was used up",
    WaitReason.FAIRNESS.value: "other tenants had had less service",
    WaitReason.RESERVE.value: "not enough free KV blocks for the output it may have",
    WaitReason.DECODE_SHARE.value: "the step's tokens went to prompts first",
    WaitReason.STATIC_BATCH.value: "the batch that ran had to end first",
    WaitReason.PREFILL_SHARE.value: "the share of a step that prefills may take was used up",
}


def reason_in_words(reason: str) -> str:
    return REASONS.get(reason, reason.replace("_", " "))


def render_text(story: Story) -> str:
    return "\n".join(_lines(story)) + "\n"


def _lines(story: Story) -> Iterator[str]:
    yield f"request {story.request_id}"
    if story.num_earlier:
        yield f"  The last one of this id; {_count(story.num_earlier, 'earlier request')} had it too."
    if story.rejected_because is not None:
        yield f"  refused when it came: {story.rejected_because}"
        return
    if story.num_prompt_tokens is None:
        yield "  The log begins in the middle of its life; what came before is not known."
    else:
        yield f"  {_count(story.num_prompt_tokens, 'prompt token')}, at most {story.max_tokens} out" + _labels(story)
    yield f"  {_outcome(story)}"
    yield ""
    for phase in story.phases:
        begin = phase.start - story.arrival_time
        yield f"  {_at(begin):>10}  {format_seconds(phase.seconds):>8}  {_what(phase)}"
    yield ""
    yield from _totals(story)


def _labels(story: Story) -> str:
    labels = [f"class {story.service_class}"] if story.service_class else []
    labels += [f"tenant {story.tenant}"] if story.tenant else []
    labels += [f"priority {story.priority}"] if story.priority else []
    return "".join(f", {label}" for label in labels)


def _outcome(story: Story) -> str:
    words = []
    if story.first_token_time is not None:
        words.append(f"first token after {format_seconds(story.first_token_time - story.arrival_time)}")
    if story.finish_time is None:
        words.append("not finished yet")
    else:
        took = format_seconds(story.finish_time - story.arrival_time)
        words.append(f"finished ({story.finish_reason}) after {took} with {_count(story.num_output_tokens, 'token')}")
    if story.num_cached_tokens:
        words.append(f"{_count(story.num_cached_tokens, 'prompt token')} from the prefix cache")
    if story.num_preemptions:
        words.append(f"preempted {_count(story.num_preemptions, 'time')}")
    return ", ".join(words)


def _at(seconds: float) -> str:
    return f"+{seconds:.4f} s"


def _what(phase: Phase) -> str:
    match phase.kind:
        case "prefill" | "decode":
            said = f"{phase.kind}: {_count(phase.num_tokens, 'token')} in {_steps(phase)}"
            if phase.batch > 1:
                said += f", up to {phase.batch} requests in a step"
            if phase.sharers:
                most = phase.sharers.most_common(_SHARERS_NAMED)
                rest = len(phase.sharers) - len(most)
                said += "; with " + ", ".join(name for name, _ in most) + (f" and {rest} more" if rest else "")
            return said + _pauses(phase)
        case "intake":
            return "intake: tokenised and handed to the engine"
        case _:
            said = f"{_KINDS[phase.kind]}: {reason_in_words(phase.reason or UNEXPLAINED)}"
            if phase.spent_on:
                said += f": {whom(phase)}"
            if phase.behind is not None:
                said += f", behind {phase.behind}"
            return said + (f" ({_steps(phase)})" if phase.num_steps else "") + _pauses(phase)


_KINDS = {"queue": "waited", "preempted": "waited after a preemption", "stalled": "left out of the step"}


def whom(phase: Phase) -> str:
    """Who got the tokens meanwhile, the greediest first."""
    most = phase.spent_on.most_common(_SHARERS_NAMED)
    rest = len(phase.spent_on) - len(most)
    return ", ".join(f"{name} ({_count(num, 'token')})" for name, num in most) + (f" and {rest} more" if rest else "")


def _steps(phase: Phase) -> str:
    if phase.first_step == phase.last_step:
        return f"step {phase.first_step}"
    return f"{phase.num_steps} steps, {phase.first_step} to {phase.last_step}"


def _pauses(phase: Phase) -> str:
    return f" ({format_seconds(phase.between_seconds)} between steps)" if phase.between_seconds >= 1e-3 else ""


def _totals(story: Story) -> Iterator[str]:
    total = sum(phase.seconds for phase in story.phases) or 1.0
    for kind, seconds in sorted(story.seconds_by_kind().items(), key=lambda item: -item[1]):
        if seconds > 0.0:
            yield f"  {kind:<12} {format_seconds(seconds):>8}  {100 * seconds / total:5.1f} %"
    waits = story.wait_by_reason()
    if waits:
        yield "  it waited for: " + ", ".join(
            f"{reason} {format_seconds(seconds)}" for reason, seconds in waits.items()
        )


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" + ("" if number == 1 else "s")
