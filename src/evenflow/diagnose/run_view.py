"""What the rules look at: all steps and all requests of one log, and the settings that held at its end."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from evenflow.core.errors import EvenflowError
from evenflow.core.events import ConfigChanged, Event, PolicyChanged, StepRecord
from evenflow.core.plan import WaitReason
from evenflow.observe.fold import SpanFold
from evenflow.observe.spans import RequestSpan

MAX_STEPS = 1_000_000


class TooLong(EvenflowError):
    """The log has more steps than are looked at at once."""


@dataclass(frozen=True, slots=True)
class Run:
    """`itl_target` is in seconds: what the operator asks for, or else what the policy aims at; None if nobody says."""

    steps: Sequence[StepRecord]
    spans: Sequence[RequestSpan]
    settings: Mapping[str, str]
    itl_target: float | None = None

    @property
    def token_budget(self) -> int:
        """The largest that was in force."""
        return max((step.token_budget for step in self.steps), default=0)

    @property
    def seats(self) -> int:
        """As set, or as many as ever ran at once."""
        stated = self.settings.get("max_num_seqs", "")
        return int(stated) if stated.isdecimal() else max((step.running for step in self.steps), default=0)

    @property
    def busy_seconds(self) -> float:
        return sum(seconds(step) for step in self.steps)

    @property
    def first_tokens(self) -> list[RequestSpan]:
        return [span for span in self.spans if span.ttft_parts is not None]

    def decode_seconds(self) -> float | None:
        """The median step that (nearly) only decodes; None where there were too few to tell."""
        plain = [
            seconds(step) for step in self.steps if step.decode_tokens and step.prefill_tokens * 10 <= tokens(step)
        ]
        return float(np.median(plain)) if len(plain) >= 10 else None

    def budget_for(self, limit: float) -> int | None:
        """The largest power of two of tokens that a step of decodes and prefills computes within `limit` seconds.

        By this run's own steps: what each prefill token added to a step of decodes. A fifth of the time is spared: the
        last chunk of a prompt attends to more than the average one. None where no step tells.
        """
        limit *= 0.8
        base = self.decode_seconds()
        mixed = [step for step in self.steps if step.decode_tokens and step.prefill_tokens * 10 > tokens(step)]
        added = sum(seconds(step) for step in mixed) - (base or 0.0) * len(mixed)
        if base is None or not mixed or added <= 0.0 or limit <= base:
            return None
        prefill = (limit - base) * sum(step.prefill_tokens for step in mixed) / added
        decodes = float(np.median([step.decode_tokens for step in mixed]))
        return int(2 ** int(np.log2(max(16.0, prefill + decodes))))


def tokens(step: StepRecord) -> int:
    return step.prefill_tokens + step.decode_tokens


def seconds(step: StepRecord) -> float:
    return step.end - step.start


def shut_by(step: StepRecord, *reasons: WaitReason) -> bool:
    return any(door.reason in reasons for door in step.doors)


def worst_steps(steps: Iterable[StepRecord], count: int = 5) -> tuple[int, ...]:
    """The longest."""
    return tuple(step.step for step in sorted(steps, key=lambda step: -seconds(step))[:count])


class TimeWithin:
    """How much of a stretch of time fell into some of the steps."""

    def __init__(self, steps: Sequence[StepRecord]) -> None:
        self._steps = steps
        self._ends = [step.end for step in steps]
        self._before = [0.0, *accumulate(seconds(step) for step in steps)]

    def between(self, start: float, end: float) -> float:
        return max(0.0, self._until(end) - self._until(start))

    def _until(self, time: float) -> float:
        index = bisect_left(self._ends, time)
        under_way = max(0.0, time - self._steps[index].start) if index < len(self._steps) else 0.0
        return self._before[index] + under_way


def look_at(events: Iterable[Event], *, itl_target: float | None = None) -> Run:
    """Raises TooLong for a log that would not fit into memory."""
    steps: list[StepRecord] = []
    spans: list[RequestSpan] = []
    settings: dict[str, str] = {}
    fold = SpanFold()
    for event in events:
        spans += fold.feed(event).finished
        if isinstance(event, StepRecord):
            steps.append(event)
            if len(steps) > MAX_STEPS:
                raise TooLong(
                    f"the log has more than {MAX_STEPS:,} steps; cut it with `evenflow log FILE --steps A:B --to PART`"
                )
        elif isinstance(event, ConfigChanged | PolicyChanged):
            settings.update(event.settings)
    spans += fold.live()
    if itl_target is None and settings.get("budget") == "itl-target":
        itl_target = float(settings["itl_target"])
    return Run(steps, spans, settings, itl_target)
