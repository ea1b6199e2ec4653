"""What recording costs a server: W1 through two engine processes, of which one records, a few steps each in turns.

    engine  --frames-->  front: tokens become text, and the log and all folds       `recording`
    engine  --frames-->  front: tokens become text                                  `plain`, which makes no events

Both fronts are this process, as a server's front is one: it works beside its engine's next step, and competes with that
for the cores. Only one engine computes at a time (watched_engine.py), and what the front does for it falls in its own
turn. So the loss is all that recording takes from a server's throughput, wherever it takes it; and what a step of the
engine itself waits for is told by the stopwatches there.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Final

import msgspec

from evenflow.bench.policies.loads import w1_load, warm_up_load
from evenflow.bench.recorder import Recorder
from evenflow.bench.rounds import medians
from evenflow.bench.watched_engine import STEPS_OF_A_TURN, YOUR_TURN, Row
from evenflow.core.request import Request
from evenflow.engine.api import EngineFacts, TextOptions
from evenflow.engine.child import ENGINE_COMMAND, ProcessLink
from evenflow.engine.client import EngineClient, Link
from evenflow.engine.config import EngineConfig
from evenflow.engine.messages import Command, StepResult
from evenflow.engine.text import TokenText
from evenflow.workload.peer_format import PeerRequest

MOST_LOSS: Final = 0.02
MOST_MICROSECONDS: Final = 20.0
POLICY: Final = "evenflow-throughput"
NAMES: Final = ("plain", "recording")


@dataclass(frozen=True, slots=True)
class ServedRecording:
    """Medians over the rounds. `loss` is the share of throughput; all else is microseconds per step of the engine.

    A step waits for `making_us` (of the events) and `packing_us` (a frame with them less a frame without).
    `front_us` is the processor time that the front takes more for the engine that records, reading included, by
    difference; `log_us` and `folds_us` are the parts of it that a stopwatch sees.
    """

    rounds: int
    steps: int
    plain_tokens_per_second: float
    recording_tokens_per_second: float
    loss: float
    making_us: float
    packing_us: float
    front_us: float
    log_us: float
    folds_us: float

    @property
    def engine_us(self) -> float:
        return self.making_us + self.packing_us

    @property
    def met(self) -> bool:
        return self.loss <= MOST_LOSS and self.engine_us <= MOST_MICROSECONDS


@dataclass(frozen=True, slots=True)
class _Played:
    """One engine's share of a round. `rows` is which of its results they were."""

    tokens: int
    steps: int
    seconds: float
    processor_seconds: float
    rows: slice


class _TurnLink:
    """A link to an engine that computes in its turns only, and counts what comes of them."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._deliver: Callable[[StepResult], None] = lambda result: None
        self._left = 0  # steps of this turn
        self._over = asyncio.Event()
        self.num_live = 0
        self.tokens = 0
        self.steps = 0
        self.results = 0

    async def start(self, deliver: Callable[[StepResult], None], died: Callable[[str], None]) -> EngineFacts:
        self._deliver = deliver

        def gone(reason: str) -> None:
            self.num_live = 0
            self._over.set()
            died(reason)

        return await self._link.start(self._take, gone)

    def send(self, command: Command) -> None:
        self._link.send(command)

    async def stop(self) -> None:
        await self._link.stop()

    def _take(self, result: StepResult) -> None:
        self._deliver(result)
        self.results += 1
        if not result.outputs:
            return
        self.steps += 1
        self._left -= 1
        self.tokens += sum([len(output.token_ids) for output in result.outputs])
        self.num_live -= sum([output.finish_reason is not None for output in result.outputs])
        if not self._left or not self.num_live:
            # After those who subscribed to the events, whose work belongs to this turn.
            asyncio.get_running_loop().call_soon(self._over.set)

    async def turn(self) -> None:
        self._over.clear()
        self._left = STEPS_OF_A_TURN
        self.send(YOUR_TURN)
        await self._over.wait()


@dataclass(frozen=True, slots=True)
class _Side:
    link: _TurnLink
    client: EngineClient
    figures: Path


async def measure(
    config: EngineConfig,
    tokenizer: TokenText,
    workload: Sequence[PeerRequest],
    folder: Path,
    *,
    rounds: int,
    progress: Callable[[str], None] = lambda what: None,
) -> ServedRecording:
    """`folder` is for the event log and the engines' figures. Raises what starting an engine raises."""
    # Every round brings the same prompts again.
    config = replace(config, policy=POLICY, prefix_caching=config.prefix_caching is True)
    log, recorders, played = folder / "served.jsonl", list[Recorder](), list[Mapping[str, _Played]]()
    async with AsyncExitStack() as stack:
        sides = {}
        for name in NAMES:
            progress(f"starting an engine: {name}")
            figures = folder / f"{name}.json"
            command = (*ENGINE_COMMAND[:-1], "evenflow.bench.watched_engine", name, str(figures))
            link = _TurnLink(ProcessLink(config, command=command))
            client = EngineClient(link, tokenizer)
            stack.push_async_callback(client.stop)
            await client.start()
            sides[name] = _Side(link, client, figures)
        sides["recording"].client.subscribe(lambda events: recorders[-1].take(events) if recorders else None)
        progress("warming up")
        await _play(sides, warm_up_load(sides["plain"].client.facts.vocab_size, 0))
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}, in processes")
            # The clock goes on in the other engine's turns: two seconds of it are one of this engine's.
            recorders.append(Recorder(log, flush_seconds=2.0, stopwatch=time.thread_time))
            with recorders[-1].log:
                played.append(await _play(sides, w1_load(workload, number)))
                recorders[-1].settle()
    rows = {name: msgspec.json.decode(side.figures.read_bytes(), type=list[Row]) for name, side in sides.items()}
    return medians([_round(run, rows, recorder) for run, recorder in zip(played, recorders, strict=True)])


async def _play(sides: Mapping[str, _Side], load: Sequence[Request]) -> dict[str, _Played]:
    """Both play the whole load; who has given the fewest tokens is next."""
    now = time.monotonic()
    tasks = []
    before = {name: (side.link.tokens, side.link.steps, side.link.results) for name, side in sides.items()}
    for side in sides.values():
        side.link.num_live = len(load)
        for request in load:
            completion = side.client.complete(replace(request, arrival_time=now), TextOptions())
            tasks.append(asyncio.create_task(completion))
    await asyncio.sleep(0)  # all are sent
    seconds, processor_seconds = dict.fromkeys(sides, 0.0), dict.fromkeys(sides, 0.0)
    while busy := [name for name in sides if sides[name].link.num_live]:
        name = min(busy, key=lambda name: sides[name].link.tokens - before[name][0])
        began, began_processor = time.perf_counter(), time.process_time()
        await sides[name].link.turn()
        seconds[name] += time.perf_counter() - began
        processor_seconds[name] += time.process_time() - began_processor
    await asyncio.gather(*tasks)
    return {
        name: _Played(
            side.link.tokens - before[name][0],
            side.link.steps - before[name][1],
            seconds[name],
            processor_seconds[name],
            slice(before[name][2], side.link.results),
        )
        for name, side in sides.items()
    }


def _round(played: Mapping[str, _Played], rows: Mapping[str, Sequence[Row]], recorder: Recorder) -> ServedRecording:
    plain, recording = played["plain"], played["recording"]
    rates = [run.tokens / run.seconds for run in (plain, recording)]
    own = rows["recording"][recording.rows]
    without = rows["plain"][plain.rows]
    packing = [fmean(row.packing for row in each) for each in (without, own)]
    front = [run.processor_seconds / run.steps for run in (plain, recording)]
    return ServedRecording(
        rounds=1,
        steps=recording.steps,
        plain_tokens_per_second=rates[0],
        recording_tokens_per_second=rates[1],
        loss=1.0 - rates[1] / rates[0],
        making_us=1e6 * sum(row.making for row in own) / recording.steps,
        packing_us=1e6 * (packing[1] - packing[0]),
        front_us=1e6 * (front[1] - front[0]),
        log_us=1e6 * recorder.log_seconds / recording.steps,
        folds_us=1e6 * recorder.folds_seconds / recording.steps,
    )
