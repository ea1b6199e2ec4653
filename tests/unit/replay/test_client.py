"""A run from its first request to its last answer: pacing, patience, follow-ups, interruptions, connections."""

import asyncio
from dataclasses import replace

import pytest

from evenflow.core.errors import ConfigError
from evenflow.replay.client import Outcome, run_load
from evenflow.replay.connection import parse_url
from evenflow.replay.noop_server import Answer, Ending, NoopServer
from evenflow.replay.pacing import ClosedLoop, OpenLoop, Patience
from evenflow.replay.prompts import IdPrompts
from evenflow.replay.request import Reason
from evenflow.replay.target import Target
from evenflow.replay.watch import Progress
from load_world import POOL, PORT, load, plans
from virtual_loop import VirtualLoop, run_virtually


def answer_in(seconds: float) -> Answer:
    return Answer(first_token_seconds=seconds)


# ---- pacing


def test_an_open_loop_sends_on_time_whatever_the_server_does() -> None:
    seen = load(plans(20, 0.1), lambda asked: answer_in(7.0))
    assert [record.sent for record in seen.records] == pytest.approx([0.1 * i for i in range(20)], abs=1e-6)
    assert [asked.received - seen.outcome.start for asked in seen.server.asked] == pytest.approx(
        [0.1 * i for i in range(20)], abs=1e-6
    )


def test_a_user_asks_again_once_it_is_answered_and_has_thought() -> None:
    seen = load(plans(6, 0.0), lambda asked: answer_in(1.0), pacing=ClosedLoop(num_users=2, think_seconds=0.5))
    assert [record.sent for record in seen.records] == pytest.approx([0.0, 0.0, 1.5, 1.5, 3.0, 3.0], abs=1e-3)
    assert [record.ttft for record in seen.records] == pytest.approx([1.0] * 6, abs=1e-3)


def test_more_users_than_questions_cost_nothing() -> None:
    seen = load(plans(3, 0.0), pacing=ClosedLoop(10**18))
    assert len(seen.good) == 3


def test_a_closed_loop_may_end_by_the_clock() -> None:
    seen = load(plans(50, 0.0), lambda asked: answer_in(1.0), pacing=ClosedLoop(num_users=2, seconds=3.5))
    assert len(seen.server.asked) == 8
    assert len(seen.good) == 8, "what was begun is finished"


def test_a_follow_up_waits_for_the_answer_that_it_follows() -> None:
    first, second, third = plans(3, 1.0)
    chain = [replace(first, name="a"), replace(second, name="b", parent="a"), replace(third, name="c", parent="b")]
    seen = load(chain, lambda asked: answer_in(1.5))
    # The third is due long after it could be sent: it is sent when due.
    assert [record.sent for record in seen.records] == pytest.approx([0.0, 1.5, 3.0], abs=1e-3)
    assert [record.ttft for record in seen.records] == pytest.approx([1.5] * 3, abs=1e-3)
    assert [record.dispatch_lag for record in seen.records] == pytest.approx([0.0] * 3, abs=1e-3)


def test_a_follow_up_of_what_failed_is_not_sent_and_said_to_be_so() -> None:
    first, second = plans(2, 1.0)
    chain = [replace(first, name="a"), replace(second, parent="a")]
    seen = load(chain, lambda asked: Answer(status=500))
    assert len(seen.server.asked) == 1
    assert [record.reason for record in seen.records] == [Reason.HTTP, Reason.PARENT_FAILED]
    assert "it follows r0, which failed" in seen.details()


def test_a_parent_that_is_not_in_the_load_is_not_waited_for() -> None:
    (only,) = plans(1, 1.0)
    assert len(load([replace(only, parent="gone")]).good) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: OpenLoop(0),
        lambda: ClosedLoop(0),
        lambda: ClosedLoop(1, think_seconds=-1.0),
        lambda: ClosedLoop(1, seconds=0.0),
        lambda: Patience(silence_seconds=0.0),
        lambda: Patience(silence_seconds=float("nan")),
    ],
)
def test_a_pacing_that_cannot_be_is_refused(wrong: type) -> None:
    with pytest.raises(ConfigError):
        wrong()


# ---- a server that is not well


@pytest.mark.parametrize(
    ("answer", "reason", "words"),
    [
        (Answer(status=429), Reason.HTTP, 'HTTP 429: {"error":{"message":"the script says so"}}'),
        (Answer(gap_seconds=0.1, ending=Ending.CUT), Reason.LOST, "the connection was lost after 4 tokens"),
        (Answer(gap_seconds=0.1, ending=Ending.HANG), Reason.STALLED, "nothing came for 30 s after 4 tokens"),
        (Answer(first_token_seconds=1e6), Reason.STALLED, "nothing came for 30 s after 0 tokens; it is half-dead"),
        (Answer(first_token_seconds=1.0, gap_seconds=29.0), Reason.STALLED, "was not complete after 60 s"),
        (Answer(num_tokens=100), Reason.TOO_MANY_TOKENS, "sent 73 tokens where 4 were asked for; it seems to ignore"),
    ],
)
def test_what_goes_wrong_is_said_and_never_measured(answer: Answer, reason: Reason, words: str) -> None:
    patience = Patience(silence_seconds=30.0, whole_seconds=60.0)
    seen = load(plans(2, 0.5), lambda asked: answer, patience=patience)
    for record in seen.records:
        assert record.reason is reason
        assert words in (record.detail or "")
        assert (record.ttft, record.tpot, record.e2e, len(record.token_gaps())) == (None, None, None, 0)


def test_signs_of_life_without_tokens_are_not_listened_to_for_ever() -> None:
    seen = load(
        plans(1, 0.0),
        lambda asked: Answer(gap_seconds=1.0, num_tokens=10_000, field=""),
        patience=Patience(silence_seconds=5.0, token_seconds=20.0),
    )
    assert seen.details() == ["the server sends, but no token for 20 s after 0 tokens; it is half-dead"]


def test_an_answer_that_is_no_stream_is_refused() -> None:
    class Plain(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")

    record = _against(Plain)
    assert record.reason is Reason.NOT_A_STREAM
    assert "answered 200 with application/json, not an event stream" in (record.detail or "")


def test_what_is_not_http_is_said_to_be_so() -> None:
    class Mumbling(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            self.transport.write(b"\x00\x01 what?\r\n\r\n")

    record = _against(Mumbling)
    assert record.reason is Reason.LOST
    assert record.ttft is None


def test_nobody_there() -> None:
    def shut(loop: VirtualLoop) -> None:
        loop.shut(PORT)

    seen = load(plans(3, 0.5), meanwhile=shut)
    assert {record.reason for record in seen.records} == {Reason.CONNECT}
    assert "no connection could be opened: [Errno 111] Connection refused" in seen.details()


def _against(protocol: type[asyncio.Protocol]):  # type: ignore[no-untyped-def]  # a Record
    from evenflow.replay.record import records_of

    async def main(loop: VirtualLoop) -> Outcome:
        loop.listen(PORT, protocol)
        return await run_load(Target(parse_url(f"http://h:{PORT}"), "m"), plans(1, 1.0), IdPrompts(POOL, 1))

    (record,) = records_of(run_virtually(main))
    return record


# ---- connections


def test_connections_are_used_again() -> None:
    seen = load(plans(50, 0.1), lambda asked: answer_in(0.05))
    assert seen.outcome.num_connections == 1
    assert len(load(plans(50, 0.1), lambda asked: answer_in(0.35)).good) == 50


def test_a_connection_that_the_server_closed_while_idle_costs_nothing() -> None:
    """It closes just as the next request is on its way: nothing of the answer has come, so it is sent again."""

    class Impatient(NoopServer):
        def protocol(self) -> asyncio.Protocol:
            inner = super().protocol()

            class OneAnswer(asyncio.Protocol):
                asked = 0

                def connection_made(self, transport: asyncio.BaseTransport) -> None:
                    assert isinstance(transport, asyncio.Transport)
                    self.transport = transport
                    inner.connection_made(transport)

                def data_received(self, data: bytes) -> None:
                    self.asked += 1
                    if self.asked == 1:
                        inner.data_received(data)
                    else:
                        self.transport.close()

                def connection_lost(self, exc: Exception | None) -> None:
                    inner.connection_lost(exc)

            return OneAnswer()

    seen = load(plans(10, 1.0), server=Impatient())
    assert len(seen.good) == 10
    assert seen.outcome.num_connections == 10


# ---- the end


def test_interrupting_a_run_keeps_what_was_seen() -> None:
    async def main(loop: VirtualLoop) -> Outcome:
        server = NoopServer(lambda asked: answer_in(1.0))
        loop.listen(PORT, server.protocol)
        run = loop.create_task(run_load(Target(parse_url(f"http://h:{PORT}"), "m"), plans(10, 1.0), IdPrompts(POOL, 1)))
        loop.call_later(4.5, run.cancel)
        return await run

    outcome = run_virtually(main)
    reasons = [observed.failure.reason if observed.failure else None for observed in outcome.observed]
    assert reasons == [None] * 4 + [Reason.INTERRUPTED] + [None] * 5
    assert [observed.sent is not None for observed in outcome.observed] == [True] * 5 + [False] * 5
    assert outcome.gave_up == "the run was interrupted"


def test_whoever_watches_sees_the_counts_grow() -> None:
    seen: list[tuple[int, int, bool]] = []

    def watch(progress: Progress, now: float) -> None:
        seen.append((progress.num_sent, progress.num_in_flight, progress.next_due is None))

    async def main(loop: VirtualLoop) -> Outcome:
        server = NoopServer(lambda asked: answer_in(2.0))
        loop.listen(PORT, server.protocol)
        target = Target(parse_url(f"http://h:{PORT}"), "m")
        return await run_load(target, plans(5, 1.0), IdPrompts(POOL, 1), watch=watch)

    run_virtually(main)
    assert seen[:2] == [(0, 0, False), (1, 1, False)], "at once, and then from time to time"
    assert seen[-1] == (5, 0, True)
    assert max(in_flight for _, in_flight, _ in seen) >= 2
    assert len(seen) > 8


def test_the_body_says_what_was_planned() -> None:
    first, second = plans(2, 0.1, prompt=33, output=7)
    seen = load([replace(first, tenant="them", service_class="flex"), replace(second, service_class="gold")])
    bodies = [asked.body for asked in seen.server.asked]
    assert [(asked.num_prompt_tokens, asked.max_tokens) for asked in seen.server.asked] == [(33, 7)] * 2
    assert bodies[0]["user"] == "them"
    assert bodies[0]["service_tier"] == "flex"
    assert not {"user", "service_tier"} & bodies[1].keys(), "what is no service tier is a label of ours"
    assert bodies[0]["stream"] is True
    assert bodies[0]["ignore_eos"] is True
