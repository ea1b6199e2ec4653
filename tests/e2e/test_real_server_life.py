"""A real server under a crowd, when clients hang up, and when it ends."""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path

import httpx
import openai
import pytest

from e2e.real_server import FRANCE, MODEL, PATIENCE_SECONDS, REAL, SEATS, SHADOW, RealServer, children_of, serving
from evenflow.core.events import Finished, FirstToken, Scheduled, StepRecord
from evenflow.core.request import FinishReason

pytestmark = pytest.mark.model

# ---- side by side ------------------------------------------------------------------------------------------------

# Prompts of some 6 to 37 tokens; answers of 6 to 21.
CROWD = {f"crowd-{i}": ("The history of the " + "old " * (9 * i % 32) + "bridge", 6 + i) for i in range(16)}


async def ask(client: openai.AsyncOpenAI, name: str, *, stream: bool, seed: int | None = None) -> str:
    prompt, max_tokens = CROWD[name]
    answer = await client.completions.create(
        model=MODEL,
        prompt=prompt,
        max_tokens=max_tokens,
        temperature=0 if seed is None else 1,
        seed=seed,
        stream=stream,
        extra_headers={"x-request-id": name},
        extra_body={"ignore_eos": True},
    )
    if isinstance(answer, openai.AsyncStream):
        async with answer:
            return "".join([chunk.choices[0].text async for chunk in answer])
    return answer.choices[0].text


def test_mixed_requests_share_iterations_and_none_changes_another(real_server: RealServer) -> None:
    loners = ("crowd-3", "crowd-8")

    async def scenario() -> None:
        async with real_server.async_client() as client:
            alone = [await ask(client, name, stream=True, seed=5) for name in loners]
            # The drawn ones are the same texts as alone; the others are there to be in the way.
            seeds = dict.fromkeys(loners, 5)
            asked = (ask(client, name, stream=i % 2 == 0, seed=seeds.get(name)) for i, name in enumerate(CROWD))
            crowd = dict(zip(CROWD, await asyncio.gather(*asked), strict=True))
            assert [crowd[name] for name in loners] == alone
            assert all(crowd.values())

    asyncio.run(scenario())
    names = {f"cmpl-{name}" for name in CROWD}
    real_server.until(lambda: {event.request_id for event in real_server.events(Finished)} >= names)
    steps = [step for step in real_server.events(StepRecord) if names & dict(step.scheduled).keys()]
    assert max(step.num_scheduled for step in steps) >= SEATS // 2
    assert any(step.prefill_tokens > 1 and step.decode_tokens > 1 for step in steps)
    ends = [event for event in real_server.events(Finished) if event.request_id == "cmpl-crowd-15"]
    assert [(end.reason, end.num_output_tokens) for end in ends] == [(FinishReason.LENGTH, CROWD["crowd-15"][1])]


# ---- who leaves early --------------------------------------------------------------------------------------------


def assert_freed(server: RealServer, request_id: str) -> Finished:
    """It ended as aborted, nothing was computed for it afterwards, and nobody holds anything."""
    server.until(lambda: server.finished(request_id) is not None)
    end = server.finished(request_id)
    assert end is not None
    assert end.reason is FinishReason.ABORT
    later = [step for step in server.events(StepRecord) if step.step > end.step]
    assert not [step for step in later if request_id in dict(step.scheduled)]
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"):
        server.until(lambda name=name: server.gauge(name) == 0)  # type: ignore[misc] # mypy infers no default's type
    return end


def leave(server: RealServer, when: Callable[[], object], request_id: str, **fields: object) -> None:
    """Ask, not streaming, and hang up once `when` is true."""

    async def scenario() -> None:
        body = {"model": MODEL, "temperature": 0, "ignore_eos": True, **fields}
        headers = {"x-request-id": request_id}
        async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
            asking = asyncio.create_task(client.post(f"{server.url}/v1/completions", json=body, headers=headers))
            await asyncio.to_thread(server.until, when)
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking

    asyncio.run(scenario())


def test_who_hangs_up_in_mid_stream_is_freed(real_server: RealServer) -> None:
    with real_server.client.completions.create(
        model=MODEL,
        prompt=FRANCE,
        max_tokens=2000,
        stream=True,
        extra_headers={"x-request-id": "leaver"},
        extra_body={"ignore_eos": True},
    ) as stream:
        assert len(list(islice(stream, 2))) == 2
    assert assert_freed(real_server, "cmpl-leaver").num_output_tokens < 2000


def test_who_hangs_up_before_the_whole_answer_is_freed(real_server: RealServer) -> None:
    before = real_server.gauge("vllm:generation_tokens")

    def speaking() -> bool:
        return real_server.gauge("vllm:generation_tokens") > before

    leave(real_server, speaking, "patient", prompt=FRANCE, max_tokens=2000)
    assert assert_freed(real_server, "cmpl-patient").num_output_tokens < 2000


def test_who_hangs_up_between_two_chunks_of_the_prompt_is_freed(real_server: RealServer) -> None:
    def seated() -> bool:
        return real_server.gauge("vllm:num_requests_running") == 1

    leave(real_server, seated, "reader", prompt="many words " * 1500, max_tokens=1)
    assert assert_freed(real_server, "cmpl-reader").num_output_tokens == 0
    assert [event for event in real_server.events(Scheduled) if event.request_id == "cmpl-reader"]
    assert not [event for event in real_server.events(FirstToken) if event.request_id == "cmpl-reader"]


def test_who_hangs_up_in_the_queue_is_freed(real_server: RealServer) -> None:
    def queued() -> bool:
        return real_server.gauge("vllm:num_requests_waiting") == 1

    leave(real_server, queued, "house", prompt=FRANCE, max_tokens=1000, n=SEATS + 1)
    last = f"cmpl-house~{SEATS}"
    assert assert_freed(real_server, last).num_output_tokens == 0
    assert not [event for event in real_server.events(Scheduled) if event.request_id == last]


# ---- how it ends -------------------------------------------------------------------------------------------------


def test_a_signal_lets_streams_finish_and_refuses_new_requests(tmp_path: Path) -> None:
    with serving(tmp_path, *REAL) as server:
        with server.client.completions.create(
            model=MODEL, prompt=FRANCE, max_tokens=64, temperature=0, stream=True, extra_body={"ignore_eos": True}
        ) as stream:
            chunks = iter(stream)
            text = next(chunks).choices[0].text
            server.process.ask_to_end()
            server.until(lambda: httpx.get(f"{server.url}/ready").status_code == 503)
            with pytest.raises(openai.InternalServerError) as refused:
                server.client.completions.create(model=MODEL, prompt=FRANCE)
            assert refused.value.status_code == 503
            rest = list(chunks)
        text += "".join(chunk.choices[0].text for chunk in rest)
        assert text.startswith(" Paris")
        assert rest[-1].choices[0].finish_reason == "length"
        assert server.process.wait(PATIENCE_SECONDS) == 0
        (end,) = server.events(Finished)
        assert (end.reason, end.num_output_tokens) == (FinishReason.LENGTH, 64)
        assert server.events(StepRecord)[-1].kv_blocks_used == 0


def test_a_dead_engine_ends_streams_with_an_error_and_is_said(tmp_path: Path) -> None:
    with serving(tmp_path, *SHADOW) as server:
        with server.client.completions.create(
            model=MODEL, prompt=[1, 2, 3], max_tokens=4000, n=8, stream=True, extra_body={"ignore_eos": True}
        ) as stream:
            chunks = iter(stream)
            next(chunks)
            (engine,) = children_of(server.process.pid)
            os.kill(engine, signal.SIGKILL)
            with pytest.raises(openai.APIError, match="SIGKILL"):
                list(chunks)
        health = httpx.get(f"{server.url}/health")
        assert health.status_code == 503
        assert health.json()["status"] == "dead"
        with pytest.raises(openai.InternalServerError):
            server.client.completions.create(model=MODEL, prompt=[1])
        assert server.gauge("evenflow:engine_up") == 0
        assert server.gauge("evenflow:requests_lost") == 8
        server.process.ask_to_end()
        assert server.process.wait(PATIENCE_SECONDS) == 1
        assert "killed by SIGKILL; 8 under way ended with an error; every request" in server.process.said()
