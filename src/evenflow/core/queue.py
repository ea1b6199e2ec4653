"""The waiting requests: one heap per flow, ordered by the policy's key.

Everything is O(log n) in the number waiting. A request that leaves from the middle (abort) stays in its heap as a dead
entry until it surfaces, or until the dead outnumber the living and the heap is rebuilt.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from evenflow.core.policy import FlowId
from evenflow.core.request import OrderKey, RequestId, RequestState


class _Flow:
    __slots__ = ("heap", "live")

    def __init__(self) -> None:
        self.heap: list[tuple[OrderKey, RequestState]] = []
        self.live: dict[RequestId, RequestState] = {}


class WaitingQueue:
    """Keys must be unique, so that two heap entries never compare by their states."""

    __slots__ = ("_flows", "_num_waiting")

    def __init__(self) -> None:
        self._flows: dict[FlowId, _Flow] = {}
        self._num_waiting = 0

    def __len__(self) -> int:
        return self._num_waiting

    def __iter__(self) -> Iterator[RequestState]:
        for flow in self._flows.values():
            yield from flow.live.values()

    def flows(self) -> tuple[FlowId, ...]:
        """Flows with somebody waiting, in the order in which they became so."""
        return tuple(self._flows)

    def push(self, flow_id: FlowId, state: RequestState) -> None:
        flow = self._flows.setdefault(flow_id, _Flow())
        assert state.request.id not in flow.live
        heappush(flow.heap, (state.key, state))
        flow.live[state.request.id] = state
        self._num_waiting += 1

    def head(self, flow_id: FlowId) -> RequestState | None:
        """The most deserving of a flow; None if nobody waits there."""
        flow = self._flows.get(flow_id)
        return None if flow is None else flow.heap[0][1]

    def remove(self, flow_id: FlowId, state: RequestState) -> None:
        flow = self._flows[flow_id]
        del flow.live[state.request.id]
        self._num_waiting -= 1
        if not flow.live:
            del self._flows[flow_id]
            return
        if len(flow.heap) > 2 * len(flow.live) + 8:
            flow.heap = [entry for entry in flow.heap if flow.live.get(entry[1].request.id) is entry[1]]
            heapify(flow.heap)
        while flow.live.get(flow.heap[0][1].request.id) is not flow.heap[0][1]:
            heappop(flow.heap)
