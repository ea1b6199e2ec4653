"""A load run while it runs: what the client sees of each request, joined with what the engine's event log says of it.

Only the engine knows whether a request without a token yet waits for a seat or is having its prompt computed, and which
requests an iteration ran; only the client knows when its tokens came. The log lags behind by up to a second,
so where the two disagree about the same thing, the client is right.
"""

from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Self

from evenflow.core.events import Arrived, Event, Finished, Preempted, Scheduled, StepRecord
from evenflow.core.request import RequestId
from evenflow.observe.log import EventLogReader, GrowingLines
from evenflow.replay.request import ObservedRequest

_STEPS_KEPT = 1024


class Phase(Enum):
    """In the order of a life."""

    TO_COME = "to come"
    QUEUED = "queued"
    PREFILL = "prefill"
    DECODE = "decode"
    DONE = "done"
    CUT = "cut"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Iteration:
    """How many requests one step ran, and with how many tokens."""

    num_prefill: int
    num_decode: int
    num_tokens: int

    @property
    def num_requests(self) -> int:
        return self.num_prefill + self.num_decode


@dataclass(slots=True)
class _Tokens:
    """What the engine has of a request. `num_computed` is None while it has no seat."""

    num_prompt: int
    num_output: int = 0
    num_computed: int | None = None

    @property
    def decodes(self) -> bool:
        """Only its newest token is to be computed, and that is none of the prompt."""
        computed = self.num_computed
        return computed is not None and self.num_prompt <= computed == self.num_prompt + self.num_output - 1


class StepFold:
    """The iterations of a log: the latest as they were, and all of them in sum. Feed it every event."""

    def __init__(self) -> None:
        self.latest: deque[Iteration] = deque(maxlen=_STEPS_KEPT)
        self.tokens: list[int] = []
        self.num_shared = 0
        self.num_mixed = 0
        self.num_preemptions = 0
        self._requests: dict[RequestId, _Tokens] = {}
        self._entered: set[RequestId] = set()  # in the step whose record comes next
        self._leaving: list[RequestId] = []  # likewise

    def feed(self, event: Event) -> None:
        match event:
            case Arrived():
                self._requests[event.request_id] = _Tokens(event.num_prompt_tokens)
            case Scheduled():
                self._requests[event.request_id].num_computed = event.cached_tokens + event.swapped_in_tokens
                self._entered.add(event.request_id)
            case Preempted():
                self.num_preemptions += 1
                self._requests[event.request_id].num_computed = None
            case Finished():
                self._leaving.append(event.request_id)
            case StepRecord():
                self._take_step(event)
            case _:
                pass

    def _take_step(self, step: StepRecord) -> None:
        num_prefill = 0
        for request_id, num_tokens in step.scheduled:
            tokens = self._requests[request_id]
            num_prefill += request_id in self._entered or not tokens.decodes
            tokens.num_computed = (tokens.num_computed or 0) + num_tokens
        for request_id in step.emitted:
            self._requests[request_id].num_output += 1
        self._entered.clear()
        while self._leaving:
            self._requests.pop(self._leaving.pop(), None)
        iteration = Iteration(num_prefill, step.num_scheduled - num_prefill, step.prefill_tokens + step.decode_tokens)
        self.latest.append(iteration)
        self.tokens.append(iteration.num_tokens)
        self.num_shared += iteration.num_requests > 1
        self.num_mixed += step.prefill_tokens > 0 and step.decode_tokens > 0

    def num_prompt_computed(self, request_id: RequestId) -> int | None:
        """Tokens that are computed of a request that is being prefilled, perhaps again; None if it is not."""
        tokens = self._requests.get(request_id)
        return tokens.num_computed if tokens is not None and not tokens.decodes else None


class RunWatch:
    """Give it the requests of a run and the server's event log; `look` reads what is new in there."""

    def __init__(self, observed: Sequence[ObservedRequest], log: Path) -> None:
        self.observed = observed
        self.steps = StepFold()
        self._log = log
        self._reader: EventLogReader | None = None
        self._files = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def look(self) -> None:
        if self._reader is None:
            if not self._log.exists() or self._log.stat().st_size == 0:
                return
            lines = GrowingLines(self._files.enter_context(self._log.open("rb")))
            self._reader = EventLogReader(lines, str(self._log))
        for event in self._reader:
            self.steps.feed(event)

    def phase(self, request: ObservedRequest) -> Phase:
        if request.finished is not None:
            if request.error is not None:
                return Phase.FAILED
            return Phase.DONE if request.complete else Phase.CUT
        if request.sent is None:
            return Phase.TO_COME
        if request.chunk_times:
            return Phase.DECODE
        return Phase.QUEUED if self.prompt_computed(request) is None else Phase.PREFILL

    def prompt_computed(self, request: ObservedRequest) -> int | None:
        """Tokens of the prompt that are computed, as far as the engine is at it."""
        return self.steps.num_prompt_computed(RequestId(f"cmpl-{request.plan.request_id}"))

    def counts(self) -> dict[Phase, int]:
        counts = dict.fromkeys(Phase, 0)
        for request in self.observed:
            counts[self.phase(request)] += 1
        return counts
