"""What a step costs in pure Python: `schedule` plus `update`, with no model at all.

The scene: `running` requests decode, `waiting` more stand in the queue and cannot come in, and every request is long
enough that nobody leaves while we look. Block boundaries, growth and publishing happen at their natural rate.
"""

import gc
import time
from dataclasses import dataclass

from evenflow.core.budget import FixedBudget
from evenflow.core.config import SchedulerConfig
from evenflow.core.kv_cache import KVCacheManager
from evenflow.core.plan import StepOutcome
from evenflow.core.policy import SchedulingPolicy
from evenflow.core.request import Request, RequestId, SamplingParams
from evenflow.core.scheduler import Scheduler

_PROMPT_TOKENS = 200
_BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class SchedulerCost:
    """Microseconds per step: schedule and update together."""

    running: int
    waiting: int
    steps: int
    p50_us: float
    p95_us: float
    p99_us: float
    schedule_p50_us: float
    update_p50_us: float


def measure(*, running: int, waiting: int, steps: int = 1000) -> SchedulerCost:
    scheduler = _scene(running, waiting, steps)
    first = scheduler.schedule(now=0.0)  # brings everybody in, and computes the prompts
    scheduler.update(first, _outcome(first.chunks), now=0.0)
    samples: list[tuple[float, float]] = []
    gc.collect()
    for _ in range(steps):
        began = time.perf_counter()
        plan = scheduler.schedule(now=0.0)
        planned = time.perf_counter()
        outcome = _outcome(plan.chunks)
        executed = time.perf_counter()
        scheduler.update(plan, outcome, now=0.0)
        samples.append((planned - began, time.perf_counter() - executed))
        assert len(plan.chunks) == running
    total = sorted(a + b for a, b in samples)

    def micros(values: list[float], share: float) -> float:
        return round(values[min(len(values) - 1, int(share * len(values)))] * 1e6, 1)

    return SchedulerCost(
        running,
        waiting,
        steps,
        micros(total, 0.5),
        micros(total, 0.95),
        micros(total, 0.99),
        micros(sorted(a for a, _ in samples), 0.5),
        micros(sorted(b for _, b in samples), 0.5),
    )


def _scene(running: int, waiting: int, steps: int) -> Scheduler:
    tokens_each = _PROMPT_TOKENS + steps + 2
    kv = KVCacheManager(num_blocks=running * (tokens_each // _BLOCK_SIZE + 1), block_size=_BLOCK_SIZE)
    scheduler = Scheduler(
        SchedulerConfig(max_num_seqs=running, max_model_len=2 * tokens_each, vocab_size=50_000),
        kv,
        SchedulingPolicy(budget=FixedBudget(running * _PROMPT_TOKENS)),
        lambda event: None,
    )
    for index in range(running + waiting):
        prompt = tuple((index * 7 + position) % 50_000 for position in range(_PROMPT_TOKENS))
        sampling = SamplingParams(max_tokens=steps + 2)
        scheduler.add(Request(RequestId(f"request-{index}"), prompt, sampling, arrival_time=float(index)), now=0.0)
    return scheduler


def _outcome(chunks: tuple[tuple[object, ...], ...]) -> StepOutcome:
    return StepOutcome({RequestId(str(chunk[0])): 7 for chunk in chunks})
