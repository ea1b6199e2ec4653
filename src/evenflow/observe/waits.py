"""Why requests wait, in seconds by reason, at a cost that does not grow with the number waiting.

Each step says why the doors stayed shut, each for a flow, a lane or everybody, and the nearest door is the reason of
everybody in a flow until the next step decides again. So a flow keeps one running total of shut seconds per reason; a
request notes the totals when a step first passes it over, and the difference when it leaves is its own wait.

        joins            step k            step k+1           step k+2      enters
    ------|----------------|------------------|------------------|------------|----->
           `iteration`      door's reason of k  ... of k+1         ... of k+2

Before the first decision nobody has refused the request anything: it waits for the iteration under way. That time is
called `iteration`. A flow that waits although no door names it would be a hole in the log; it is called `unexplained`,
so that a hole is seen and not spread over the others.
"""

from collections.abc import Mapping, Sequence

from evenflow.core.plan import EVERYBODY, Door, WaitReason, lane_of
from evenflow.core.request import RequestId

ITERATION = "iteration"
UNEXPLAINED = "unexplained"
DOOR_REASONS: tuple[str, ...] = (*(reason.value for reason in WaitReason), UNEXPLAINED)
WAIT_REASONS: tuple[str, ...] = (ITERATION, *DOOR_REASONS)

_UNEXPLAINED_INDEX = DOOR_REASONS.index(UNEXPLAINED)
_INDEX_OF: Mapping[WaitReason, int] = {reason: DOOR_REASONS.index(reason.value) for reason in WaitReason}


class _Flow:
    """`shut_seconds` by reason, up to `since`; from then on the reason is `reason`. `num_passed_over` wait so."""

    __slots__ = ("lane", "num_passed_over", "num_waiting", "reason", "shut_seconds", "since")

    def __init__(self, flow_id: str) -> None:
        self.lane = lane_of(flow_id)
        self.shut_seconds = [0.0] * len(DOOR_REASONS)
        self.since = 0.0
        self.reason = _UNEXPLAINED_INDEX
        self.num_waiting = 0
        self.num_passed_over = 0


class _Wait:
    """`shut_before` is the flow's totals at the first step that passed the request over; None before that step.

    `earlier` is what the same wait came to in other flows, by reason.
    """

    __slots__ = ("earlier", "flow", "flow_id", "iteration_seconds", "joined", "shut_before")

    def __init__(self, flow_id: str, flow: _Flow, joined: float, earlier: Mapping[str, float]) -> None:
        self.earlier = earlier
        self.flow_id = flow_id
        self.flow = flow
        self.joined = joined
        self.iteration_seconds = 0.0
        self.shut_before: list[float] | None = None


class WaitFold:
    """The waits of all requests. `seconds` sums the waits of everybody, ended or not, up to the last decision."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(WAIT_REASONS, 0.0)
        self._flows: dict[str, _Flow] = {}
        self._waits: dict[RequestId, _Wait] = {}
        self._fresh: dict[RequestId, _Wait] = {}

    @property
    def num_waiting(self) -> int:
        return len(self._waits)

    def join(
        self, request_id: RequestId, flow_id: str, time: float, *, earlier: Mapping[str, float] | None = None
    ) -> None:
        flow = self._flows.get(flow_id)
        if flow is None:
            flow = self._flows[flow_id] = _Flow(flow_id)
            flow.since = time
        flow.num_waiting += 1
        wait = _Wait(flow_id, flow, time, earlier or {})
        self._waits[request_id] = self._fresh[request_id] = wait

    def move(self, request_id: RequestId, flow_id: str, time: float) -> None:
        """The policy changed: the request goes on waiting in another flow."""
        self.join(request_id, flow_id, time, earlier=self.leave(request_id, time))

    def leave(self, request_id: RequestId, time: float) -> dict[str, float]:
        """End a wait. Its seconds by reason, without zeros; they sum to the whole wait."""
        wait = self._waits.pop(request_id)
        waited = self._leave(request_id, wait, time)
        if not wait.earlier:
            return waited
        by_reason = dict(wait.earlier)
        for reason, seconds in waited.items():
            by_reason[reason] = by_reason.get(reason, 0.0) + seconds
        return by_reason

    def _leave(self, request_id: RequestId, wait: _Wait, time: float) -> dict[str, float]:
        flow = wait.flow
        flow.num_waiting -= 1
        if flow.num_waiting == 0:
            del self._flows[wait.flow_id]
        if wait.shut_before is None:
            del self._fresh[request_id]
            self.seconds[ITERATION] += time - wait.joined
            return {ITERATION: time - wait.joined} if time > wait.joined else {}
        flow.num_passed_over -= 1
        reason, since = DOOR_REASONS[flow.reason], time - flow.since
        self.seconds[reason] += since
        by_reason = {ITERATION: wait.iteration_seconds} if wait.iteration_seconds > 0.0 else {}
        for each, shut, before in zip(DOOR_REASONS, flow.shut_seconds, wait.shut_before, strict=True):
            if each is reason:
                if shut - before + since > 0.0:
                    by_reason[each] = shut - before + since
            elif shut > before:
                by_reason[each] = shut - before
        return by_reason

    def decide(self, time: float, doors: Sequence[Door]) -> None:
        """A step that started at `time` admitted whom it admitted; everybody still here was passed over."""
        if self._flows:
            reasons = {door.flow: _INDEX_OF[door.reason] for door in doors}
            everybody = reasons.get(EVERYBODY, _UNEXPLAINED_INDEX)
            for flow_id, flow in self._flows.items():
                seconds = time - flow.since
                flow.shut_seconds[flow.reason] += seconds
                self.seconds[DOOR_REASONS[flow.reason]] += seconds * flow.num_passed_over
                flow.since = time
                flow.reason = reasons[flow_id] if flow_id in reasons else reasons.get(flow.lane, everybody)
        if self._fresh:
            self._pass_over_fresh(time)

    def _pass_over_fresh(self, time: float) -> None:
        for request_id, wait in tuple(self._fresh.items()):
            if wait.joined > time:
                continue  # came while the step ran; the next one decides about it
            wait.iteration_seconds = time - wait.joined
            wait.shut_before = wait.flow.shut_seconds.copy()
            wait.flow.num_passed_over += 1
            self.seconds[ITERATION] += wait.iteration_seconds
            del self._fresh[request_id]
