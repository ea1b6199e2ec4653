"""A contender behind a pipe: a driver process that loads the engine and runs what it is given, as fast as it can."""

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import BinaryIO

import msgspec

from evenflow.bench.peers.contenders import Launch
from evenflow.bench.peers.engines import Batch, Limits, SingleStream, check_counts
from evenflow.bench.peers.messages import (
    MAX_LINE_BYTES,
    ContenderFailed,
    Failed,
    Floor,
    FloorJob,
    Ran,
    Ready,
    Reply,
    RunJob,
    parse_reply,
)
from evenflow.bench.peers.session import Session
from evenflow.workload.peer_format import PeerRequest


class PipedEngine:
    """Ready to run when it is constructed. `folder` is a place of its own."""

    def __init__(self, launch: Launch, folder: Path, limits: Limits) -> None:
        self._limits = limits
        self._job = folder / "job.json"
        began = time.monotonic()
        try:
            self._session = Session(launch, folder / "log", talking=True)
        except OSError as error:
            raise ContenderFailed(f"{launch.command[0]} cannot be started: {error.strerror}") from error
        self._orders, replies = self._session.pipes
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        threading.Thread(target=_read_lines, args=(replies, self._lines), name="driver-replies", daemon=True).start()
        try:
            ready = self._reply(limits.start_seconds)
            if not isinstance(ready, Ready):
                raise ContenderFailed(f"its driver began with {ready}")
        except BaseException:  # an interrupt, too: nothing must be left behind
            self.end()
            raise
        self.version = ready.version
        self.start_seconds = time.monotonic() - began

    @property
    def session(self) -> int:
        return self._session.pid

    def batch(self, requests: Sequence[PeerRequest]) -> Batch:
        prompts = [request.prompt_token_ids for request in requests]
        ran = self._ask(RunJob(prompts, [request.max_tokens for request in requests]))
        if not isinstance(ran, Ran):
            raise ContenderFailed(f"its driver answered {ran} instead of what it ran")
        return Batch(
            wall_seconds=ran.wall_seconds,
            prompt_tokens=check_counts("prompt", ran.prompt_tokens, list(map(len, prompts))),
            output_tokens=check_counts("output", ran.output_tokens, [request.max_tokens for request in requests]),
            steps=tuple(ran.steps),
        )

    def single(self, request: PeerRequest) -> SingleStream:
        """By difference: the request with one token of output, and whole."""
        first = self.batch([replace(request, max_tokens=1)]).wall_seconds
        whole = self.batch([request]).wall_seconds
        return SingleStream(first * 1e3, (whole - first) * 1e3 / (request.max_tokens - 1))

    def floor_seconds(self, batch: Batch) -> float:
        """The time of the model's matrix products alone, at the sizes that the steps of `batch` had."""
        floor = self._ask(FloorJob([(step.tokens, step.sampled) for step in batch.steps]))
        if not isinstance(floor, Floor):
            raise ContenderFailed(f"its driver answered {floor} instead of a floor")
        return floor.seconds

    def pause(self) -> None:
        self._session.pause()

    def resume(self) -> None:
        self._session.resume()

    def end(self) -> None:
        self._session.end()

    def _ask(self, job: RunJob | FloorJob) -> Reply:
        self._job.write_bytes(msgspec.json.encode(job))
        try:
            self._orders.write(msgspec.json.encode({"job": str(self._job)}) + b"\n")
            self._orders.flush()
        except OSError:
            raise self._ended() from None
        return self._reply(self._limits.run_seconds)

    def _reply(self, seconds: float) -> Reply:
        try:
            line = self._lines.get(timeout=seconds)
        except Empty:
            raise ContenderFailed(f"no answer within {seconds:.0f} s; it said: {self._session.last_words()}") from None
        if line is None:
            raise self._ended()
        reply = parse_reply(line)
        if isinstance(reply, Failed):
            raise ContenderFailed(reply.reason)
        return reply

    def _ended(self) -> ContenderFailed:
        """It closes the pipe first, and says why it ends then."""
        self._session.wait_for_exit()
        return ContenderFailed(f"its driver ended; it said: {self._session.last_words()}")


def _read_lines(stream: BinaryIO, lines: SimpleQueue[bytes | None]) -> None:
    try:
        while line := stream.readline(MAX_LINE_BYTES):
            lines.put(line)
    except (OSError, ValueError):  # closed by us
        pass
    lines.put(None)
