"""Runs on the virtual clock: the real core, a simulated model of stated speed, and a load that is written out.

A step takes 5 ms, 0.1 ms per token and 50 ns per position that its tokens attend to: a small model on a processor.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from evenflow.core.config import SchedulerConfig
from evenflow.core.events import Event
from evenflow.core.kv_cache import KVCacheManager
from evenflow.core.plan import StepPlan
from evenflow.core.policy.presets import policy_of
from evenflow.core.policy.spec import PolicySpec
from evenflow.core.request import Request, RequestId, SamplingParams
from evenflow.core.scheduler import Scheduler
from evenflow.engine.clock import VirtualClock
from evenflow.engine.core import EngineCore
from evenflow.engine.messages import Abort, Add, Command
from evenflow.executors.simulated import SimulatedExecutor

VOCAB_SIZE = 1000
Timed = tuple[float, Command]


@dataclass(frozen=True, slots=True)
class Server:
    """`blocks` of `block_size` tokens."""

    seats: int = 64
    budget: int = 512
    blocks: int = 4096
    block_size: int = 16
    policy: PolicySpec = field(default_factory=PolicySpec)
    prefix_caching: bool = True


def step_seconds(plan: StepPlan) -> float:
    return 0.005 + 0.0001 * plan.num_tokens + 5e-8 * plan.attended_context_tokens


def ask(
    name: str,
    at: float,
    prompt: int | Sequence[int],
    output: int,
    *,
    rng: Random | None = None,
    tenant: str = "default",
    service_class: str = "default",
    received: float | None = None,
) -> Timed:
    """A request that reaches the engine at `at`. A prompt of which only the length is given is like no other."""
    rng = rng or Random(name)
    tokens = tuple(rng.randrange(VOCAB_SIZE) for _ in range(prompt)) if isinstance(prompt, int) else tuple(prompt)
    return at, Add(
        Request(
            RequestId(name),
            tokens,
            SamplingParams(max_tokens=output, ignore_eos=True),
            arrival_time=at if received is None else received,
            tenant=tenant,
            service_class=service_class,
        )
    )


def abort(name: str, at: float) -> Timed:
    return at, Abort(RequestId(name))


def simulate(server: Server, load: Sequence[Timed]) -> list[Event]:
    """Every event until all work is done. Commands are taken between steps, as the engine's loop does."""
    clock = VirtualClock()
    events: list[Event] = []
    kv = KVCacheManager(num_blocks=server.blocks, block_size=server.block_size, prefix_caching=server.prefix_caching)
    config = SchedulerConfig(server.seats, 100_000, VOCAB_SIZE, 0, server.budget)
    scheduler = Scheduler(config, kv, server.policy, events.append)
    core = EngineCore(scheduler, SimulatedExecutor(step_seconds, clock.advance), clock, events)
    core.announce(
        (
            ("max_num_seqs", str(server.seats)),
            ("max_num_batched_tokens", str(server.budget)),
            ("num_blocks", str(server.blocks)),
            ("block_size", str(server.block_size)),
        )
    )
    waiting = sorted(load, key=lambda timed: timed[0], reverse=True)
    told: list[Event] = []
    while waiting or core.has_work:
        if not core.has_work:
            clock.advance_to(max(clock.now(), waiting[-1][0]))
        while waiting and waiting[-1][0] <= clock.now():
            core.accept(waiting.pop()[1])
        told += core.step().events if core.has_work else core.news().events
    return told


def preset(name: str) -> PolicySpec:
    return policy_of(name)
