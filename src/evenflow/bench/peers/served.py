"""A contender as a server: started at a free port, waited for, and asked through HTTP by one client for all."""

import asyncio
import socket
import time
from collections.abc import Sequence
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import msgspec

from evenflow.bench.peers.contenders import Launch
from evenflow.bench.peers.engines import Batch, Limits, SingleStream, check_counts
from evenflow.bench.peers.messages import ContenderFailed
from evenflow.bench.peers.pinning import pin_busiest_threads
from evenflow.bench.peers.session import Session
from evenflow.replay.client import run_load
from evenflow.replay.connection import parse_url
from evenflow.replay.request import ObservedRequest, PlannedRequest
from evenflow.replay.target import Target
from evenflow.workload.peer_format import PeerRequest

MODEL_NAME = "m"
_POLL_SECONDS = 0.05
_ANSWER_SECONDS = 5.0


class GivenPrompts:
    """The workload's own token ids."""

    def __init__(self, requests: Sequence[PeerRequest]) -> None:
        self._requests = requests

    def prompt(self, plan: PlannedRequest) -> bytes:
        return msgspec.json.encode(self._requests[plan.index].prompt_token_ids)


class ServedEngine:
    """Ready to serve when it is constructed. `ready` is the path that answers 200 once it is."""

    def __init__(self, launch: Launch, ready: str, folder: Path, limits: Limits) -> None:
        self._limits = limits
        self._sent = 0
        self._port = _free_port()
        began = time.monotonic()
        try:
            self._session = Session(launch.at_port(self._port), folder / "log", talking=False)
        except OSError as error:
            raise ContenderFailed(f"{launch.command[0]} cannot be started: {error.strerror}") from error
        try:
            self._wait_until_ready(ready, began + limits.start_seconds)
        except BaseException:  # an interrupt, too: nothing must be left behind
            self.end()
            raise
        self.version = "served"
        self.start_seconds = time.monotonic() - began

    @property
    def session(self) -> int:
        return self._session.pid

    def batch(self, requests: Sequence[PeerRequest]) -> Batch:
        observed = self.load(requests, [0.0] * len(requests))
        began = min(request.intended for request in observed)
        ended = max(request.finished for request in observed if request.finished is not None)
        return Batch(
            wall_seconds=ended - began,
            prompt_tokens=sum(len(request.prompt_token_ids) for request in requests),
            output_tokens=sum(request.max_tokens for request in requests),
        )

    def single(self, request: PeerRequest) -> SingleStream:
        [seen] = self.load([request], [0.0])
        assert seen.ttft is not None, "checked by load"
        between = seen.chunk_times[-1] - seen.chunk_times[0]
        return SingleStream(seen.ttft * 1e3, between * 1e3 / (request.max_tokens - 1))

    def load(self, requests: Sequence[PeerRequest], arrival_seconds: Sequence[float]) -> list[ObservedRequest]:
        """All requests at their times; every one was answered with as many tokens as it asked for."""
        plans = []
        for index, (request, arrival) in enumerate(zip(requests, arrival_seconds, strict=True)):
            self._sent += 1
            num_prompt = len(request.prompt_token_ids)
            plans.append(PlannedRequest(index, f"r{self._sent}", arrival, num_prompt, request.max_tokens))
        try:
            observed = asyncio.run(self._within_time(plans, GivenPrompts(requests)))
        except TimeoutError:
            raise ContenderFailed(f"not done within {self._limits.run_seconds:.0f} s") from None
        for seen in observed:
            if seen.error is not None:
                raise ContenderFailed(f"a request failed: {seen.error}")
            if not seen.chunk_times:
                raise ContenderFailed("a request was answered without a token")
        check_counts("output", [seen.num_output_tokens or 0 for seen in observed], [r.max_tokens for r in requests])
        return observed

    def pin_threads(self, cpus: Sequence[int]) -> None:
        pin_busiest_threads(self._session.pid, cpus)

    def pause(self) -> None:
        self._session.pause()

    def resume(self) -> None:
        self._session.resume()

    def end(self) -> None:
        self._session.end()

    async def _within_time(self, plans: Sequence[PlannedRequest], prompts: GivenPrompts) -> list[ObservedRequest]:
        target = Target(parse_url(f"http://127.0.0.1:{self._port}"), MODEL_NAME)
        async with asyncio.timeout(self._limits.run_seconds):
            return list((await run_load(target, plans, prompts)).observed)

    def _wait_until_ready(self, path: str, until: float) -> None:
        while not _answers(self._port, path):
            status = self._session.exit_status
            if status is not None:
                raise ContenderFailed(f"the server ended with status {status}; it said: {self._session.last_words()}")
            if time.monotonic() > until:
                raise ContenderFailed(f"the server was not ready in time; it said: {self._session.last_words()}")
            time.sleep(_POLL_SECONDS)


def _answers(port: int, path: str) -> bool:
    with closing(HTTPConnection("127.0.0.1", port, timeout=_ANSWER_SECONDS)) as connection:
        try:
            connection.request("GET", path)
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False


def _free_port() -> int:
    """Nobody else takes it before the server does, or the server says so and its row fails."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port
