"""What a step costs in pure Python: `schedule` plus `update`, with no model at all.

The scene: `running` requests decode, `waiting` more stand in the queue and cannot come in, and every request is long
enough that nobody leaves while we look. Block boundaries, growth and publishing happen at their natural rate. Requests
are of `tenants` in turn and have priorities, deadlines and service classes, for policies that look at them.
"""

import gc
import time
from dataclasses import dataclass, replace

from evenflow.core.config import SchedulerConfig
from evenflow.core.kv_cache import KVCacheManager
from evenflow.core.plan import StepOutcome
from evenflow.core.policy.spec import ClassSpec, PolicySpec
from evenflow.core.request import Request, RequestId, SamplingParams
from evenflow.core.scheduler import Scheduler

_PROMPT_TOKENS = 200
_BLOCK_SIZE = 16
_STEP_SECONDS = 0.02
_CLASSES = ("default", "interactive", "default", "batch", "default")

EVERYTHING = PolicySpec(
    order="deadline",
    fairness="vtc",
    interleave="shared",
    min_prefill_share=0.1,
    budget="itl-target",
    long_prompts="limited",
    reserve="expected",
    max_backfill=4,
    classes=(
        ClassSpec("interactive", rank=0, guaranteed_seats=0.1, guaranteed_kv=0.05),
        ClassSpec("default", rank=1, max_waiting_requests=1_000_000),
        ClassSpec("batch", rank=2, guaranteed_seats=0.05, max_seats=0.9, max_kv=0.9),
    ),
    max_waiting_requests=1_000_000,
    refuse_late=True,
)
"""Every piece that costs something, at once."""


@dataclass(frozen=True, slots=True)
class SchedulerCost:
    """Microseconds per step: schedule and update together."""

    running: int
    waiting: int
    tenants: int
    steps: int
    p50_us: float
    p95_us: float
    p99_us: float
    schedule_p50_us: float
    update_p50_us: float


def measure(
    *, running: int, waiting: int, steps: int = 1000, tenants: int = 1, spec: PolicySpec | None = None
) -> SchedulerCost:
    scheduler = _scene(running, waiting, steps, tenants, PolicySpec() if spec is None else spec)
    now = _run_in(scheduler, running)
    samples: list[tuple[float, float]] = []
    gc.collect()
    for _ in range(steps):
        began = time.perf_counter()
        plan = scheduler.schedule(now=now)
        planned = time.perf_counter()
        outcome = _outcome(plan.chunks)
        now += _STEP_SECONDS
        executed = time.perf_counter()
        scheduler.update(plan, outcome, now=now)
        samples.append((planned - began, time.perf_counter() - executed))
        assert len(plan.chunks) == running
    total = sorted(a + b for a, b in samples)

    def micros(values: list[float], share: float) -> float:
        return round(values[min(len(values) - 1, int(share * len(values)))] * 1e6, 1)

    return SchedulerCost(
        running,
        waiting,
        tenants,
        steps,
        micros(total, 0.5),
        micros(total, 0.95),
        micros(total, 0.99),
        micros(sorted(a for a, _ in samples), 0.5),
        micros(sorted(b for _, b in samples), 0.5),
    )


def _run_in(scheduler: Scheduler, running: int) -> float:
    """Steps until all seats decode; the time afterwards."""
    now = 0.0
    for _ in range(2 * running + 50):
        plan = scheduler.schedule(now=now)
        now += _STEP_SECONDS
        scheduler.update(plan, _outcome(tuple(chunk for chunk in plan.chunks if chunk.samples)), now=now)
        if plan.num_decode_tokens == running:
            break
    return now


def _scene(running: int, waiting: int, steps: int, tenants: int, spec: PolicySpec) -> Scheduler:
    steps_in_all = steps + 2 * running + 50  # those that bring everybody in come on top
    tokens_each = _PROMPT_TOKENS + steps_in_all
    kv = KVCacheManager(num_blocks=2 * running * (tokens_each // _BLOCK_SIZE + 1), block_size=_BLOCK_SIZE)
    seats = max(running, 1)
    scheduler = Scheduler(
        SchedulerConfig(
            max_num_seqs=seats,
            max_model_len=2 * tokens_each,
            vocab_size=50_000,
            max_num_batched_tokens=running * _PROMPT_TOKENS,
        ),
        kv,
        replace(spec, max_num_seqs=None, max_num_batched_tokens=None),
        lambda event: None,
    )
    for index in range(running + waiting):
        scheduler.add(_request(index, tenants, steps_in_all), now=0.0)
    return scheduler


def _request(index: int, tenants: int, max_tokens: int) -> Request:
    prompt = tuple((index * 7 + position) % 50_000 for position in range(_PROMPT_TOKENS))
    return Request(
        RequestId(f"request-{index}"),
        prompt,
        SamplingParams(max_tokens=max_tokens),
        arrival_time=index / 1000,
        tenant=f"tenant-{index % tenants}",
        service_class=_CLASSES[index // tenants % len(_CLASSES)],
        ttft_deadline=1e6 + index,
    )


def _outcome(chunks: tuple[tuple[object, ...], ...]) -> StepOutcome:
    return StepOutcome({RequestId(str(chunk[0])): 7 for chunk in chunks})
