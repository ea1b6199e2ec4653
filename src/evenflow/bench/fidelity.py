"""How far the simulator is from this very machine: calibrate, serve other traffic live, simulate it, compare.

    calibrate   batch, chunk and context excited through the engine            seconds
    live        requests of Azure lengths, sent on time by another thread to the engine's own loop, under
                another step budget and another cap than the calibration had   as long as asked
    simulate    the same requests by the cost                                  a moment

The rate is set to a share of what the engine can do with this traffic, found by the cost itself. The demands of the
design are printed beside what was reached; a miss is a finding, not an error.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from evenflow.core.events import Event
from evenflow.core.request import Request, RequestId, SamplingParams
from evenflow.engine.build import build_core
from evenflow.engine.config import EngineConfig
from evenflow.engine.inbox import QueueInbox
from evenflow.engine.loop import run
from evenflow.engine.messages import Add, StepResult
from evenflow.simulate.calibrate import calibrate
from evenflow.simulate.config import SimulationConfig
from evenflow.simulate.cost import StepCost
from evenflow.simulate.run import simulate
from evenflow.simulate.validate import Validation, validate
from evenflow.workload.formats import azure_excerpt
from evenflow.workload.trace import TraceRequest
from evenflow.workload.transform import fit_to_context, scale_lengths


@dataclass(frozen=True, slots=True)
class Fidelity:
    cost: StepCost
    validation: Validation
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
    seed: int = 0,
    progress: Callable[[str], None] = lambda what: None,
) -> Fidelity:
    """`load` is the share of the capacity that is offered."""
    began = time.monotonic()
    cost = calibrate(
        config, seconds=calibrate_seconds, seed=seed, progress=lambda share, words: progress(f"calibrate: {words}")
    )
    other = replace(
        config,
        max_num_seqs=max(2, config.max_num_seqs * 3 // 4),
        max_num_batched_tokens=max(64, config.max_num_batched_tokens * 3 // 4),
    )
    lengths = _lengths(length_scale, config)
    capacity = _capacity(cost, other, lengths)
    rate = load * capacity
    rows = _timed(lengths, rate, live_seconds, seed)
    progress(f"live: {len(rows)} requests in {live_seconds:.0f} s, {rate:.3g}/s of a capacity of {capacity:.3g}/s")
    events = live(other, rows, seed)
    progress("simulate")
    return Fidelity(cost, validate(events, cost, seed=seed), rate, capacity, time.monotonic() - began)


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


def live(config: EngineConfig, rows: list[TraceRequest], seed: int) -> list[Event]:
    """The events of an engine that is sent these requests on time. Its loop is the server's; HTTP is left out."""
    core, facts = build_core(config)
    inbox, events = QueueInbox(), list[Event]()
    rng = Random(seed)
    prompts = [tuple([rng.randrange(facts.vocab_size) for _ in range(row.num_prompt_tokens)]) for row in rows]
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
    run(core, inbox, deliver)
    sender.join()
    return events
