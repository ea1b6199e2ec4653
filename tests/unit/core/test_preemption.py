"""Recompute or swap: what each choice says, and how `auto` follows what the engine sees."""

import pytest

from evenflow.core.copy_time import CopyTime
from evenflow.core.kv_cache import Loss
from evenflow.core.policy.preemption import Cheaper, PreemptionMode, Recompute, Swap
from evenflow.core.step_time import StepTimeModel, StepWork

RECOMPUTE, SWAP = PreemptionMode.RECOMPUTE, PreemptionMode.SWAP
LOSS = Loss(num_tokens=100, attended_context_tokens=5050, num_blocks_out=6, num_blocks_in=4)


def model(*, token: float, position: float = 0.0, base: float = 0.05) -> StepTimeModel:
    """One that has seen steps of such costs."""
    step_time = StepTimeModel()
    for tokens in range(16, 160, 4):
        context = tokens * (tokens % 7 + 20)
        step_time.observe(StepWork(4, 400, tokens, context), base + token * tokens + position * context)
        step_time.observe(StepWork(4, 400, 0, 0), base)
    return step_time


def copies(seconds_per_block: float) -> CopyTime:
    copy_time = CopyTime()
    copy_time.observe(8, 8 * seconds_per_block)
    return copy_time


def test_the_simple_choices_do_not_look_at_the_loss() -> None:
    assert Swap().mode_of(Loss(0, 0, 9, 9)) is SWAP
    assert Recompute().mode_of(Loss(9, 45, 0, 0)) is RECOMPUTE


@pytest.mark.parametrize(("block", "mode"), [(0.09, SWAP), (0.11, RECOMPUTE)])
def test_both_ways_of_every_block_stand_against_all_tokens(block: float, mode: PreemptionMode) -> None:
    assert Cheaper(model(token=0.01), copies(block)).mode_of(LOSS) is mode


@pytest.mark.parametrize(("block", "mode"), [(0.13, SWAP), (0.17, RECOMPUTE)])
def test_what_the_tokens_attend_to_counts(block: float, mode: PreemptionMode) -> None:
    assert Cheaper(model(token=0.01, position=0.0001), copies(block)).mode_of(LOSS) is mode


def test_the_fixed_cost_of_a_step_is_not_that_of_a_recompute() -> None:
    """It is paid for those beside it anyway."""
    assert Cheaper(model(token=0.001, base=10.0), copies(0.02)).mode_of(LOSS) is RECOMPUTE


def test_nothing_to_compute_again_is_not_worth_a_copy() -> None:
    """Everything is held by others, who keep it cached."""
    assert Cheaper(model(token=1.0), copies(0.0)).mode_of(Loss(0, 0, 3, 0)) is RECOMPUTE


def test_who_does_not_know_what_a_copy_takes_tries_one() -> None:
    assert Cheaper(model(token=0.0), CopyTime()).mode_of(LOSS) is SWAP
    assert Cheaper(StepTimeModel(), copies(1e9)).mode_of(LOSS) is SWAP


def test_one_slow_copy_is_not_believed_for_ever() -> None:
    """A swap of 2 seconds is tried again when recomputing, a second each time, has taken 40."""
    auto = Cheaper(model(token=0.01), copies(0.2))
    modes = [auto.mode_of(LOSS) for _ in range(60)]
    assert modes.index(SWAP) == pytest.approx(40, abs=2)
    auto.copy_time.observe(8, 1.6)
    assert auto.mode_of(LOSS) is RECOMPUTE
    for _ in range(100):
        auto.copy_time.observe(8, 0.008)
    assert auto.mode_of(LOSS) is SWAP


def test_the_time_of_a_copy_is_that_of_the_last_ones() -> None:
    copy_time = copies(1.0)
    for _ in range(200):
        copy_time.observe(2, 0.5)
    assert copy_time.seconds(4) == pytest.approx(1.0, rel=0.01)


def test_steps_without_copies_say_nothing() -> None:
    copy_time = CopyTime()
    copy_time.observe(0, 0.0)
    assert copy_time.seconds(1) is None
