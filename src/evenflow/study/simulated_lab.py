"""The study on a device that need not be here: a simulated engine on a cost file."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from evenflow.simulate.config import SimulationConfig
from evenflow.simulate.cost import StepCost
from evenflow.simulate.run import simulate
from evenflow.study.lab import Lab, Played
from evenflow.tune.settings import Settings, simulated
from evenflow.workload.trace import TraceRequest

_BASE = SimulationConfig(prefix_caching=False)
_SEED = 1
_ROUTER = "least-outstanding-tokens"
_HOST_BLOCKS = 1 << 16


@dataclass(frozen=True, slots=True)
class SimulatedLab:
    """`size` is the share of the requests of the full study; what an experiment says must not depend on it."""

    cost: StepCost
    base: SimulationConfig = _BASE
    max_num_seqs: int = 128
    max_num_batched_tokens: int = 2048
    size: float = 1.0

    @property
    def name(self) -> str:
        identity = self.cost.identity
        return f"simulated, {identity.description or identity.machine} ({identity.kind.value})"

    def count(self, requests: int) -> int:
        return max(40, round(requests * self.size))

    def tokens(self, tokens: int) -> int:
        return tokens

    def play(self, load: Sequence[TraceRequest], settings: Settings, *, replicas: int = 1) -> Played:
        config = simulated(settings, self.base, self.cost.kv_tokens)
        done = simulate(load, self.cost, config, seed=_SEED, replicas=replicas, router=_ROUTER)
        return Played(done.result, done.num_preemptions)

    def with_host_memory(self, seconds_per_block: float) -> Lab:
        cost = replace(self.cost, swap_block_seconds=seconds_per_block)
        return replace(self, cost=cost, base=replace(self.base, num_host_blocks=_HOST_BLOCKS))
