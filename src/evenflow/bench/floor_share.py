"""How much of a step is the model's matrix products: W1, and after each of its steps the products alone at its sizes.

    step | its products alone | step | its products alone | ...

A machine that changes its speed within seconds is then the same for both. Timed after a whole run, the same products
took 41 to 88 % of it. The products' weights are another copy, and what they leave in the caches a step must fetch anew.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from evenflow.bench.floor import ProductFloor
from evenflow.bench.policies.loads import w1_load, warm_up
from evenflow.bench.policies.play import engine_on
from evenflow.core.events import StepRecord
from evenflow.core.policy.presets import policy_of
from evenflow.engine.build import load_model
from evenflow.engine.config import EngineConfig
from evenflow.engine.core import EngineCore
from evenflow.engine.messages import Add
from evenflow.workload.peer_format import PeerRequest

_POLICY = "evenflow-throughput"


@dataclass(frozen=True, slots=True)
class FloorShare:
    """Medians over the rounds. `share` is the products' seconds by the steps'."""

    rounds: int
    steps: int
    seconds: float
    floor_seconds: float
    share: float
    lowest_share: float
    highest_share: float


def measure(
    config: EngineConfig,
    workload: Sequence[PeerRequest],
    *,
    rounds: int,
    progress: Callable[[str], None] = lambda what: None,
) -> FloorShare:
    """Raises ConfigError where the decoder is no program of kernels."""
    progress("loading the model, and the products once more")
    config = replace(config, prefix_caching=config.prefix_caching is True)  # every round brings the same prompts
    floor = ProductFloor(config)
    model = load_model(config)
    core = engine_on(model, config, policy_of(_POLICY))
    progress("warming up")
    warm_up(core, model.vocab_size, 0)
    found = []
    for number in range(rounds):
        progress(f"round {number + 1} of {rounds}")
        found.append([*_steps(core, floor, workload, number)])
    seconds = [sum(step for step, _ in each) for each in found]
    floors = [sum(products for _, products in each) for each in found]
    shares = [products / whole for products, whole in zip(floors, seconds, strict=True)]
    return FloorShare(
        rounds=rounds,
        steps=round(median(map(len, found))),
        seconds=median(seconds),
        floor_seconds=median(floors),
        share=median(shares),
        lowest_share=min(shares),
        highest_share=max(shares),
    )


def _steps(
    core: EngineCore, floor: ProductFloor, workload: Sequence[PeerRequest], number: int
) -> Iterator[tuple[float, float]]:
    """Seconds of each step, and of its products alone."""
    for request in w1_load(workload, number):
        core.accept(Add(request))
    while core.has_work:
        began = time.perf_counter()
        result = core.step()
        seconds = time.perf_counter() - began
        steps = [event for event in result.events if isinstance(event, StepRecord)]
        sizes = [(step.prefill_tokens + step.decode_tokens, len(step.emitted)) for step in steps]
        yield seconds, floor.seconds(sizes)
