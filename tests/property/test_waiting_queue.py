"""A flow's queue against a sorted list, with many leaving from the middle and some coming back."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from evenflow.core.queue import FlowQueue
from evenflow.core.request import Request, RequestId, RequestState, SamplingParams


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue = FlowQueue()
        self.line: list[RequestState] = []
        self.count = 0

    def _push(self, state: RequestState) -> None:
        self.queue.push(state)
        self.line.append(state)
        self.line.sort(key=lambda each: each.key)

    def _remove(self, state: RequestState) -> None:
        self.queue.remove(state)
        self.line.remove(state)

    @rule(urgency=st.integers(0, 3), burst=st.integers(1, 12))
    def arrive(self, urgency: int, burst: int) -> None:
        for _ in range(burst):
            self.count += 1
            request = Request(RequestId(f"r{self.count}"), (1,), SamplingParams(), 0.0)
            self._push(RequestState(request, key=(urgency, self.count)))

    @precondition(lambda self: self.line)
    @rule(back=st.booleans())
    def admit_head(self, back: bool) -> None:
        """Who is preempted comes back with the key, and so to the place, that it had."""
        head = self.queue.head()
        self._remove(head)
        if back:
            self._push(head)

    @precondition(lambda self: self.line)
    @rule(data=st.data(), back=st.booleans())
    def admit_a_follower(self, data: st.DataObject, back: bool) -> None:
        followers = self.queue.followers(5)
        if followers:
            follower = data.draw(st.sampled_from(followers))
            self._remove(follower)
            if back:
                self._push(follower)

    @precondition(lambda self: self.line)
    @rule(share=st.integers(1, 4))
    def abort_many(self, share: int) -> None:
        for state in self.line[1::share]:
            self._remove(state)

    @precondition(lambda self: self.line)
    @rule(data=st.data())
    def abort_one_and_reuse_its_id(self, data: st.DataObject) -> None:
        gone = data.draw(st.sampled_from(self.line))
        self._remove(gone)
        self.count += 1
        self._push(RequestState(gone.request, key=(data.draw(st.integers(0, 3)), self.count)))

    @invariant()
    def agrees_with_the_line(self) -> None:
        assert len(self.queue) == len(self.line)
        assert {id(state) for state in self.queue} == {id(state) for state in self.line}
        if self.line:
            assert self.queue.head() is self.line[0]
            assert self.queue.followers(4) == self.line[1:5]


TestQueueMachine = QueueMachine.TestCase
