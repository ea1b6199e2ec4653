"""Steps of an event log as samples for a fit."""

from collections.abc import Iterable, Iterator

from evenflow.core.events import Event, StepRecord
from evenflow.simulate.cost import StepFeatures
from evenflow.simulate.fit import StepSample


def samples_of(events: Iterable[Event]) -> Iterator[StepSample]:
    """Every step that fed a token, in order. A step's time is from its plan to its tokens, so the scheduler's own time
    is in it; the loop's time between two steps is the gap, where there was work to go on with."""
    return (sample for _, sample in timed_samples_of(events))


def timed_samples_of(events: Iterable[Event]) -> Iterator[tuple[float, StepSample]]:
    """Each with when it began, by the log's clock."""
    previous: StepRecord | None = None
    follows = False
    for event in events:
        if not isinstance(event, StepRecord):
            continue
        if previous is not None:
            sample = _sample(previous, event, follows)
            if sample is not None:
                yield previous.start, sample
            follows = sample is not None and sample.gap_seconds is not None
        previous = event
    if previous is not None:
        sample = _sample(previous, None, follows)
        if sample is not None:
            yield previous.start, sample


def _sample(record: StepRecord, following: StepRecord | None, follows: bool) -> StepSample | None:
    seconds = record.end - record.start - record.swap_seconds
    if seconds <= 0.0 or not record.scheduled:
        return None
    had_work = record.running > 0 and following is not None
    gap = max(0.0, following.start - record.end) if had_work and following is not None else None
    copies = record.swapped_out_blocks + record.swapped_in_blocks
    return StepSample(StepFeatures.of(record), seconds, gap, copies, record.swap_seconds, follows)
