"""What arrives when: rows of a trace in order of time, and those that wait for another's answer."""

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from math import inf

from evenflow.replay.request import PlannedRequest
from evenflow.workload.trace import TraceRequest

_Due = tuple[float, int]


def plans_of(rows: Iterable[TraceRequest | PlannedRequest]) -> list[PlannedRequest]:
    """A row's id is its place, as a replay has it, so that a simulation and a replay can be compared in pairs."""
    return [row if isinstance(row, PlannedRequest) else _plan(index, row) for index, row in enumerate(rows)]


def _plan(index: int, row: TraceRequest) -> PlannedRequest:
    return PlannedRequest(
        index=index,
        request_id=f"replay-{index:06d}",
        send_at=row.arrival_seconds,
        num_prompt_tokens=row.num_prompt_tokens,
        max_tokens=row.num_output_tokens,
        name=row.name,
        parent=row.parent,
        prefix=row.prefix,
        service_class=row.service_class,
        tenant=row.tenant,
        text=row.text,
    )


class Arrivals:
    """A follow-up is due when its time has come *and* its parent, if the trace has it, has been answered."""

    def __init__(self, plans: Sequence[PlannedRequest]) -> None:
        self.plans = plans
        names = {plan.name for plan in plans if plan.name is not None}
        self._children: dict[str, list[int]] = {}
        self._due: list[_Due] = []
        for place, plan in enumerate(plans):
            if plan.parent is not None and plan.parent in names and plan.parent != plan.name:
                self._children.setdefault(plan.parent, []).append(place)
            else:
                self._due.append((plan.send_at, place))
        heapify(self._due)

    @property
    def next_time(self) -> float:
        """Infinity if nobody is due; somebody may be once others have ended."""
        return self._due[0][0] if self._due else inf

    @property
    def some_wait_for_a_parent(self) -> bool:
        return bool(self._children)

    def take(self) -> tuple[float, int]:
        """The next arrival and its place among the plans."""
        return heappop(self._due)

    def answered(self, place: int, time: float) -> None:
        name = self.plans[place].name
        if name is None:
            return
        for child in self._children.pop(name, ()):
            heappush(self._due, (max(self.plans[child].send_at, time), child))

    def never_came(self, place: int) -> Iterator[int]:
        """Those that waited for this one, and for those: it has failed."""
        name = self.plans[place].name
        if name is None:
            return
        for child in self._children.pop(name, ()):
            yield child
            yield from self.never_came(child)
