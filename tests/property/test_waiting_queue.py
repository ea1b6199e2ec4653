"""The waiting queue against a sorted list, with many leaving from the middle."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from evenflow.core.policy import FlowId
from evenflow.core.queue import WaitingQueue
from evenflow.core.request import Request, RequestId, RequestState, SamplingParams

FLOWS = [FlowId("one"), FlowId("two")]


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue = WaitingQueue()
        self.lines: dict[FlowId, list[RequestState]] = {}  # flows in the order in which they became waited in
        self.count = 0

    def _push(self, flow: FlowId, state: RequestState) -> None:
        self.queue.push(flow, state)
        line = self.lines.setdefault(flow, [])
        line.append(state)
        line.sort(key=lambda each: each.key)

    def _remove(self, flow: FlowId, state: RequestState) -> None:
        self.queue.remove(flow, state)
        self.lines[flow].remove(state)
        if not self.lines[flow]:
            del self.lines[flow]

    @rule(flow=st.sampled_from(FLOWS), urgency=st.integers(0, 3), burst=st.integers(1, 12))
    def arrive(self, flow: FlowId, urgency: int, burst: int) -> None:
        for _ in range(burst):
            self.count += 1
            request = Request(RequestId(f"r{self.count}"), (1,), SamplingParams(), 0.0)
            self._push(flow, RequestState(request, key=(urgency, self.count)))

    @precondition(lambda self: self.lines)
    @rule(data=st.data(), back=st.booleans())
    def admit_head(self, data: st.DataObject, back: bool) -> None:
        """Who is preempted comes back with the key, and so to the place, that it had."""
        flow = data.draw(st.sampled_from(sorted(self.lines)))
        head = self.queue.head(flow)
        assert head is not None
        self._remove(flow, head)
        if back:
            self._push(flow, head)

    @precondition(lambda self: self.lines)
    @rule(data=st.data(), share=st.integers(1, 4))
    def abort_many(self, data: st.DataObject, share: int) -> None:
        flow = data.draw(st.sampled_from(sorted(self.lines)))
        for state in self.lines[flow][1::share]:
            self._remove(flow, state)

    @precondition(lambda self: self.lines)
    @rule(data=st.data())
    def abort_one_and_reuse_its_id(self, data: st.DataObject) -> None:
        flow = data.draw(st.sampled_from(sorted(self.lines)))
        gone = data.draw(st.sampled_from(self.lines[flow]))
        self._remove(flow, gone)
        self.count += 1
        self._push(flow, RequestState(gone.request, key=(data.draw(st.integers(0, 3)), self.count)))

    @invariant()
    def agrees_with_the_lines(self) -> None:
        assert self.queue.flows() == tuple(self.lines)
        assert len(self.queue) == sum(map(len, self.lines.values()))
        assert {id(state) for state in self.queue} == {id(s) for line in self.lines.values() for s in line}
        for flow in FLOWS:
            head = self.queue.head(flow)
            assert head is (self.lines[flow][0] if flow in self.lines else None)


TestQueueMachine = QueueMachine.TestCase
