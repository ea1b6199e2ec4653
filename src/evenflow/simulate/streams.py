"""When each token came, in little memory: a stream is runs of steps, and a step's end is kept once for all.

    step ends     0.021  0.043  0.064  0.085  0.107 ...                8 bytes a step
    request a     steps 1..3, 5..90                                    a pair of numbers a run

Nearly all requests are one run: from the first token on a stream gets one in every step, unless it is preempted or left
out. So a step in which nothing happens costs nothing here.
"""

from array import array
from collections.abc import Iterable, Sequence

from evenflow.core.events import Event, Finished, FirstToken
from evenflow.core.plan import StepPlan
from evenflow.core.request import RequestId

Runs = tuple[int, ...]


class Streams:
    """Told of each step in order; `runs` has first and last step (inclusive), in turn, of those that ended."""

    def __init__(self) -> None:
        self.step_ends: array[float] = array("d")
        self._streaming: dict[RequestId, int] = {}  # since which step
        self._earlier: dict[RequestId, list[int]] = {}  # runs that are over, of those that live

    def step(self, plan: StepPlan, end: float, events: Sequence[Event]) -> list[tuple[Finished, Runs]]:
        """A step was taken, with these events since the last. Those that ended, with their runs."""
        number = len(self.step_ends)
        self.step_ends.append(end)
        streaming = self._streaming
        if not (events or plan.left_out or plan.preempted) and _num_emitted(plan) == len(streaming):
            return []  # nearly always, and spares 1 us
        first = [event.request_id for event in events if type(event) is FirstToken]
        finished = [event for event in events if type(event) is Finished]
        early = [event for event in finished if event.step < plan.step]
        ended = [(event, self._take(event.request_id, number - 1)) for event in early]
        # As many as before and those who begin, and nobody stopped: the same ones, and those who begin.
        if early or plan.left_out or plan.preempted or _num_emitted(plan) != len(streaming) + len(first):
            self._compare(plan, number)
        else:
            streaming.update(dict.fromkeys(first, number))
        for event in finished:
            if event.step >= plan.step:
                last = number if event.request_id in streaming else number - 1
                ended.append((event, self._take(event.request_id, last)))
        return ended

    def leap(self, ends: Iterable[float]) -> None:
        """So many steps gave a token to each of those that stream, and to nobody else."""
        self.step_ends.extend(ends)

    def ended(self, events: Iterable[Event]) -> list[tuple[Finished, Runs]]:
        """Those that ended with the last step, or since, with their runs."""
        last = len(self.step_ends) - 1
        return [(event, self._take(event.request_id, last)) for event in events if type(event) is Finished]

    def _compare(self, plan: StepPlan, number: int) -> None:
        emitted = [chunk.request_id for chunk in plan.chunks if chunk.samples]
        streaming, now = self._streaming, set(emitted)
        for request_id in [each for each in streaming if each not in now]:
            self._earlier.setdefault(request_id, []).extend((streaming.pop(request_id), number - 1))
        for request_id in emitted:
            if request_id not in streaming:
                streaming[request_id] = number

    def _take(self, request_id: RequestId, last: int) -> Runs:
        runs = self._earlier.pop(request_id, [])
        first = self._streaming.pop(request_id, None)
        if first is not None:
            runs.extend((first, last))
        return tuple(runs)

    def token_times(self, runs: Runs) -> "array[float]":
        times: array[float] = array("d")
        for first, last in zip(runs[::2], runs[1::2], strict=True):
            times.extend(self.step_ends[first : last + 1])
        return times


def _num_emitted(plan: StepPlan) -> int:
    """How many get a token. Where only streams go on, all do: spares a look at each."""
    if not plan.num_prefill_tokens:
        return len(plan.chunks)
    return sum([chunk.samples for chunk in plan.chunks])
