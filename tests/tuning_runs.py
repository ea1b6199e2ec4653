"""Runs that never were, as tuning sees them: the same requests, with latencies that a test chooses."""

from collections.abc import Callable
from random import Random

from evenflow.simulate.cost import Identity, Kind, StepCost
from evenflow.tune.objective import Goal, parse_goal
from evenflow.tune.observations import Observations, observe
from evenflow.tune.space import Cell
from records import record, result

GOAL = parse_goal("ttft_mean", "itl_p99=50ms")


def cell(name: str) -> Cell:
    return Cell((("policy", name),))


def run(
    ttft: Callable[[int, Random], float], *, goal: Goal = GOAL, gap: float = 0.02, num: int = 400, seed: int = 0
) -> Observations:
    """`ttft` of each request; the random numbers are the run's own."""
    rng = Random(seed)
    records = [record(i, i * 0.1, ttft=ttft(i, rng), gaps=(gap, gap, gap)) for i in range(num)]
    return observe(result(*records, warm_up_seconds=0.0), goal)


def noisy(mean: float, seed: int, *, gap: float = 0.02, num: int = 400, goal: Goal = GOAL) -> Observations:
    """What is due to a request (the same in every run) and what is due to the run."""

    def ttft(index: int, rng: Random) -> float:
        return mean + 0.2 * Random(index).random() + 0.02 * rng.random()

    return run(ttft, gap=gap, num=num, seed=seed, goal=goal)


def device() -> StepCost:
    """A GPU by its data sheet: 5 ms a step, or 32 us a token if that is more."""
    return StepCost(
        Identity(Kind.ROOFLINE, "a device", "a model", "none"),
        fixed_seconds=5e-4,
        weight_seconds=4.8e-3,
        token_seconds=3.2e-5,
        request_seconds=5e-6,
        prefill_context_seconds=1e-9,
        decode_context_seconds=4e-8,
        kv_tokens=400_000,
    )
