"""How fast the machine was while a run had it, and what that did to the run: a control variate.

    pace       measured / predicted seconds of the run's own steps, of those alone in which nothing but streams went on
    expected   what a machine of that pace, rather than of the usual one, does to this configuration's objective: the
               same requests simulated with the cost at either pace, as a logarithm

Steps in which only streams go on are of the same kind under every configuration; what configurations mean to differ by
(chunks of prompts, and their company) is not in them. So what the cost gets wrong about a configuration does not pass
for the machine's pace, and a correction by it does not turn measurements into the predictions that they are to test.
The simulation is there because a queue multiplies: at 0.85 of capacity a machine a fifth slower is more than a fifth
later. How much of `expected` is taken off is fitted (blocked.py), not believed. (Control variates: Lavenberg and Welch
1981.)
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean

from evenflow.core.errors import EvenflowError
from evenflow.observe.log import read_log
from evenflow.simulate.config import SimulationConfig
from evenflow.simulate.cost import StepCost
from evenflow.simulate.pace import StreamSteps
from evenflow.simulate.run import simulate
from evenflow.tune.grid import Load
from evenflow.tune.objective import Goal
from evenflow.tune.observations import observe
from evenflow.tune.race import log_loss

LEAST_STEPS = 30


def pace_of(log: Path, cost: StepCost) -> float | None:
    """Above 1 the machine was slower than the cost says. None if the log has too few such steps, or cannot be read."""
    try:
        with read_log(log) as events:
            steps = StreamSteps.of(events, cost)
    except EvenflowError:
        return None
    if len(steps.measured) < LEAST_STEPS:
        return None
    return float(steps.measured.sum() / steps.predicted.sum())


def at_pace(cost: StepCost, pace: float) -> StepCost:
    """Everything takes so many times as long, gaps and swaps too."""
    return replace(
        cost.slowed(pace),
        gap_seconds=cost.gap_seconds * pace,
        swap_block_seconds=cost.swap_block_seconds and cost.swap_block_seconds * pace,
    )


def expected(
    runs: Sequence[tuple[SimulationConfig, float]], cost: StepCost, load: Load, goal: Goal
) -> list[float] | None:
    """Of each run, with its pace: the logarithm of what the pace does to the loss, 0 at the usual pace of these runs.

    None if some simulation comes to no number.
    """
    usual = geometric_mean([pace for _, pace in runs])
    known: dict[tuple[int, float], float] = {}

    def loss(config: SimulationConfig, pace: float) -> float:
        key = id(config), pace
        if key not in known:
            done = simulate(
                load.plans, at_pace(cost, pace), config, seed=load.seed, warm_up_seconds=load.warm_up_seconds
            )
            known[key] = log_loss(observe(done.result, goal), goal)
        return known[key]

    try:
        found = [loss(config, pace) - loss(config, usual) for config, pace in runs]
    except EvenflowError:
        return None
    return found if all(abs(each) < float("inf") for each in found) else None
