"""The load client: what it keeps of a run that ends well, badly, or before its time."""

import asyncio
from collections.abc import Iterator, Sequence

import httpx
import pytest

from e2e.server.running import RunningServer, running
from e2e.server.scripted import MODEL, PATIENCE_SECONDS, ScriptedCall, ScriptedEngine, app_for, echo_backwards
from evenflow.core.errors import EngineUnavailable
from evenflow.replay.client import ObservedRequest, PlannedRequest, run_load

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


def plan(index: int, prompt: tuple[int, ...], at: float = 0.0) -> PlannedRequest:
    return PlannedRequest(f"r{index}", at, prompt, 4)


def test_what_is_answered_is_complete_and_what_fails_says_why(server: RunningServer) -> None:
    good, bad = asyncio.run(run_load(server.url, MODEL, [plan(0, ANSWERED), plan(1, BROKEN)]))
    assert (good.complete, good.error, good.finish_reason, good.num_output_tokens) == (True, None, "length", 4)
    assert good.ttft is not None
    assert good.e2e is not None
    assert not bad.complete
    assert bad.error is not None
    assert "signal 9" in bad.error
    assert bad.e2e is None


def test_what_is_under_way_when_the_run_is_cancelled_is_cut_and_neither_done_nor_failed(server: RunningServer) -> None:
    seen: list[ObservedRequest] = []

    async def scenario() -> None:
        def start(observed: Sequence[ObservedRequest]) -> None:
            seen.extend(observed)

        plans = [plan(0, ANSWERED), plan(1, STUCK), plan(2, ANSWERED, at=10_000.0)]
        load = asyncio.create_task(run_load(server.url, MODEL, plans, on_start=start))
        async with asyncio.timeout(PATIENCE_SECONDS), httpx.AsyncClient(base_url=server.url) as client:
            while not (seen and seen[0].finished and seen[1].chunk_times):
                await client.get("/health")
        load.cancel()
        with pytest.raises(asyncio.CancelledError):
            await load

    asyncio.run(scenario())
    done, cut, unsent = seen
    assert done.complete
    assert cut.finished is not None
    assert (cut.complete, cut.error, cut.finish_reason, cut.e2e) == (False, None, None, None)
    assert unsent.sent is None
