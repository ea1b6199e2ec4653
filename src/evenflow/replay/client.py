"""Open-loop load over HTTP: every request is sent at its planned time, however slow the server is.

An open loop is what a real crowd is; waiting for an answer before sending the next request would hide the queue that
the server has built up (coordinated omission). All times are seconds on this process's monotonic clock.
"""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import httpx


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """`send_at` is in seconds after the start of the run."""

    request_id: str
    send_at: float
    prompt_token_ids: tuple[int, ...]
    max_tokens: int


@dataclass(slots=True, eq=False)
class ObservedRequest:
    """What the client saw. `chunk_times` has one instant per streamed chunk that carried a choice."""

    plan: PlannedRequest
    intended: float
    sent: float | None = None
    chunk_times: list[float] = field(default_factory=list)
    finished: float | None = None
    num_output_tokens: int | None = None
    finish_reason: str | None = None
    error: str | None = None

    @property
    def ttft(self) -> float | None:
        """From the *intended* send, so that a late client does not flatter the server."""
        return self.chunk_times[0] - self.intended if self.chunk_times else None

    @property
    def e2e(self) -> float | None:
        return self.finished - self.intended if self.finished is not None and self.complete else None

    @property
    def complete(self) -> bool:
        """It was answered to the end. `finished` without this and without an error was cut off by its own client."""
        return self.error is None and self.finish_reason is not None

    @property
    def gaps(self) -> list[float]:
        """Time between consecutive chunks."""
        return [b - a for a, b in zip(self.chunk_times, self.chunk_times[1:], strict=False)]


async def run_load(
    base_url: str,
    model: str,
    plans: Sequence[PlannedRequest],
    *,
    on_start: Callable[[Sequence[ObservedRequest]], None] = lambda observed: None,
    api_key: str | None = None,
) -> list[ObservedRequest]:
    """Send every request at its time and stream its answer; returns when all have ended, well or not.

    `on_start` is given the requests that will be filled in: what is left of them if the run is cancelled.
    """
    headers = {"authorization": f"Bearer {api_key}"} if api_key is not None else {}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=256)
    async with httpx.AsyncClient(base_url=base_url, headers=headers, timeout=None, limits=limits) as http:
        start = time.monotonic()
        observed = [ObservedRequest(plan, start + plan.send_at) for plan in plans]
        on_start(observed)
        async with asyncio.TaskGroup() as group:
            for request in sorted(observed, key=lambda r: r.intended):
                await asyncio.sleep(max(0.0, request.intended - time.monotonic()))
                group.create_task(_send(http, model, request))
    return observed


async def _send(http: httpx.AsyncClient, model: str, request: ObservedRequest) -> None:
    body = {
        "model": model,
        "prompt": list(request.plan.prompt_token_ids),
        "max_tokens": request.plan.max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    request.sent = time.monotonic()
    try:
        headers = {"x-request-id": request.plan.request_id}
        async with http.stream("POST", "/v1/completions", json=body, headers=headers) as response:
            if response.status_code != 200:
                await response.aread()
                request.error = f"HTTP {response.status_code}: {response.text[:300]}"
                return
            async for line in response.aiter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    _observe(request, json.loads(line[6:]), time.monotonic())
        if request.error is None and request.finish_reason is None:
            request.error = "the stream ended without a finish_reason"
    except (httpx.HTTPError, ValueError) as error:
        request.error = f"{type(error).__name__}: {error}"
    finally:
        request.finished = time.monotonic()


def _observe(request: ObservedRequest, chunk: dict[str, object], now: float) -> None:
    match chunk:
        case {"error": {"message": str(message)}}:
            request.error = message
        case {"choices": [{"finish_reason": reason}, *_]}:
            request.chunk_times.append(now)
            if isinstance(reason, str):
                request.finish_reason = reason
        case _:
            pass
    match chunk:
        case {"usage": {"completion_tokens": int(count)}}:
            request.num_output_tokens = count
        case _:
            pass
