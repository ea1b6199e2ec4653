"""The load client: what it keeps of a run that ends well, badly, or before its time."""

import asyncio
from collections.abc import Iterator

import httpx
import msgspec
import pytest

from e2e.server.running import RunningServer, running
from e2e.server.scripted import MODEL, PATIENCE_SECONDS, ScriptedCall, ScriptedEngine, app_for, echo_backwards
from evenflow.core.errors import EngineUnavailable
from evenflow.replay.client import INTERRUPTED, Outcome, run_load
from evenflow.replay.connection import parse_url
from evenflow.replay.request import PlannedRequest
from evenflow.replay.target import Target
from evenflow.replay.watch import Progress

ANSWERED, STUCK, BROKEN = (tuple(word.encode()) for word in ("abcd", "stuck", "die"))


def script(call: ScriptedCall) -> None:
    if call.request.prompt_token_ids == STUCK:
        call.say("x")  # and never ends
    elif call.request.prompt_token_ids == BROKEN:
        call.fail(EngineUnavailable("killed by signal 9"))
    else:
        echo_backwards(call)


@pytest.fixture
def server() -> Iterator[RunningServer]:
    engine = ScriptedEngine(script)
    with running(engine, app_for(engine)) as server:
        yield server


PROMPTS = (ANSWERED, STUCK, BROKEN)


class Words:
    """The prompt of request i is the i-th of PROMPTS."""

    def prompt(self, plan: PlannedRequest) -> bytes:
        return msgspec.json.encode(PROMPTS[plan.index])


def plan(prompt: tuple[int, ...], at: float = 0.0) -> PlannedRequest:
    return PlannedRequest(PROMPTS.index(prompt), f"r{at}-{prompt[0]}", at, len(prompt), 4)


def target(server: RunningServer) -> Target:
    return Target(parse_url(server.url), MODEL)


def test_what_is_answered_is_complete_and_what_fails_says_why(server: RunningServer) -> None:
    plans = [plan(ANSWERED), plan(BROKEN)]
    good, bad = asyncio.run(run_load(target(server), plans, Words())).observed
    assert (good.complete, good.error, good.finish_reason, good.num_output_tokens) == (True, None, "length", 4)
    assert good.ttft is not None
    assert good.e2e is not None
    assert not bad.complete
    assert bad.error is not None
    assert "signal 9" in bad.error
    assert bad.e2e is None


def test_what_is_under_way_when_the_run_is_cancelled_is_cut_and_neither_done_nor_failed(server: RunningServer) -> None:
    async def scenario() -> Outcome:
        seen: list[Progress] = []
        plans = [plan(ANSWERED), plan(STUCK), plan(ANSWERED, at=10_000.0)]
        load = asyncio.create_task(
            run_load(target(server), plans, Words(), watch=lambda progress, now: seen.append(progress))
        )
        async with asyncio.timeout(PATIENCE_SECONDS), httpx.AsyncClient(base_url=server.url) as client:
            while not (seen and seen[0].observed[0].finished and seen[0].observed[1].chunk_times):
                await client.get("/health")
        load.cancel()
        return await load

    outcome = asyncio.run(scenario())
    done, cut, unsent = outcome.observed
    assert outcome.gave_up == INTERRUPTED
    assert done.complete
    assert cut.finished is not None
    assert (cut.complete, cut.error, cut.finish_reason, cut.e2e) == (False, None, None, None)
    assert unsent.sent is None
