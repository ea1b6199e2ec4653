"""How far the simulator is from this very machine: calibrate, serve other traffic live, simulate it, compare.

    calibrate   batch, chunk and context excited through the engine            a turn's part of its seconds
    live        requests of Azure lengths, sent on time by another thread to the engine's own loop, under another
                step budget and another cap than the calibration had           a turn's part of its seconds
    ...         `turns` times; every second has the requests of the one before at the same moments, of other content
    simulate    the same requests by the cost of all calibrations              a moment

The rate is set to a share of what the engine can do with this traffic, found by the cost of the first calibration. The
demands of the design are printed beside what was reached; a miss is a finding, not an error.

A machine that others use as well is not the same from one minute to the next. So calibration and traffic take turns,
short ones: what the machine does in the one it does in the other. And live runs of the same requests are held against
each other, too: no simulation of the one can be nearer than the other is, but by luck. And every turn is simulated at
the pace that the machine had in it as well (simulate/pace.py): what is left then is the model's own error.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from random import Random

from evenflow.core.events import Event
from evenflow.core.request import Request, RequestId, SamplingParams
from evenflow.engine.build import build_core
from evenflow.engine.config import EngineConfig
from evenflow.engine.inbox import QueueInbox
from evenflow.engine.loop import run
from evenflow.engine.messages import Add, StepResult
from evenflow.simulate.calibrate import calibration_of
from evenflow.simulate.config import SimulationConfig
from evenflow.simulate.cost import StepCost
from evenflow.simulate.logged_run import logged_run
from evenflow.simulate.run import simulate
from evenflow.simulate.validate import Error, Validation, errors_between, validate_all
from evenflow.workload.formats import azure_excerpt
from evenflow.workload.trace import TraceRequest
from evenflow.workload.transform import fit_to_context, scale_lengths


@dataclass(frozen=True, slots=True)
class Fidelity:
    """`validation` is of all live runs together, `again` of the first, third ... as predictions of the next."""

    cost: StepCost
    validation: Validation
    again: tuple[Error, ...]
    rate: float
    capacity: float
    seconds: float


def measure(
    config: EngineConfig,
    *,
    calibrate_seconds: float,
    live_seconds: float,
    load: float,
    length_scale: float,
    turns: int = 12,
    seed: int = 0,
    progress: Callable[[str], None] = lambda what: None,
) -> Fidelity:
    """`load` is the share of the capacity that is offered; `turns` is even."""
    began = time.monotonic()
    progress("loading the model, twice")
    calibration = calibration_of(config, seed)
    other = replace(
        config,
        max_num_seqs=max(2, config.max_num_seqs * 3 // 4),
        max_num_batched_tokens=max(64, config.max_num_batched_tokens * 3 // 4),
    )
    engine = LiveEngine(other)
    lengths = _lengths(length_scale, config)
    rows, rate, capacity, runs = list[TraceRequest](), 0.0, 0.0, list[list[Event]]()
    for turn in range(turns):
        where = f"turn {turn + 1} of {turns}"
        progress(f"{where}, calibrate")
        calibration.learn(calibrate_seconds / turns * 0.8)
        calibration.hold_out(calibrate_seconds / turns * 0.2)
        if turn == 0:
            capacity = _capacity(calibration.fit(), other, lengths)
            rate = load * capacity
        if turn % 2 == 0:
            rows = _timed(lengths, rate, live_seconds / turns, seed + turn)
        progress(f"{where}, live: {len(rows)} requests, {rate:.3g}/s of a capacity of {capacity:.3g}/s")
        runs.append(engine.serve(rows, seed + turn))
    progress("simulate")
    cost = calibration.fit()
    records = [logged_run(events).records for events in runs]
    again = tuple(errors_between([*chain(*records[1::2])], [*chain(*records[::2])]))
    return Fidelity(cost, validate_all(runs, cost, seed=seed), again, rate, capacity, time.monotonic() - began)


def _lengths(scale: float, config: EngineConfig) -> list[TraceRequest]:
    rows = scale_lengths(azure_excerpt().requests, scale)
    return list(fit_to_context(rows, min(config.max_model_len or 2048, 2048)).requests)


def _capacity(cost: StepCost, config: EngineConfig, lengths: list[TraceRequest]) -> float:
    """Requests per second of a simulated engine to which all come at once."""
    rows = [replace(row, arrival_seconds=0.0) for row in lengths]
    simulated = SimulationConfig(
        policy=config.policy_spec(),
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        block_size=config.block_size,
    )
    return len(rows) / simulate(rows, cost, simulated).span_seconds


def _timed(lengths: list[TraceRequest], rate: float, seconds: float, seed: int) -> list[TraceRequest]:
    rng, now, rows = Random(seed + 1), 0.0, list[TraceRequest]()
    while now < seconds:
        rows.append(replace(rng.choice(lengths), arrival_seconds=now))
        now += rng.expovariate(rate)
    return rows


class LiveEngine:
    """The server's loop and core; HTTP is left out."""

    def __init__(self, config: EngineConfig) -> None:
        self._core, self._facts = build_core(config)
        self._began: tuple[Event, ...] = self._core.news().events

    def serve(self, rows: list[TraceRequest], seed: int) -> list[Event]:
        """The events of a run in which these requests come on time; `seed` is that of their content."""
        inbox, events = QueueInbox(), list(self._began)
        rng = Random(seed)
        vocab_size = self._facts.vocab_size
        prompts = [tuple([rng.randrange(vocab_size) for _ in range(row.num_prompt_tokens)]) for row in rows]
        left = len(rows)

        def deliver(result: StepResult) -> None:
            nonlocal left
            events.extend(result.events)
            left -= sum(output.finish_reason is not None for output in result.outputs) + len(result.refusals)
            if not left:
                inbox.close()

        def send() -> None:
            start = time.monotonic() + 0.5
            for index, (row, prompt) in enumerate(zip(rows, prompts, strict=True)):
                pause = start + row.arrival_seconds - time.monotonic()
                if pause > 0.0:
                    time.sleep(pause)
                sampling = SamplingParams(max_tokens=row.num_output_tokens, temperature=0.0, ignore_eos=True)
                inbox.put(Add(Request(RequestId(f"live-{index:06d}"), prompt, sampling, time.monotonic())))

        sender = threading.Thread(target=send, name="fidelity-sender", daemon=True)
        sender.start()
        run(self._core, inbox, deliver)
        sender.join()
        return events
