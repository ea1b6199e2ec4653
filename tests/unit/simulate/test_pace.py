"""The machine's pace from a live log, and what is left of a simulation's errors once it is given."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from rich.console import Console

from evenflow.cli.validate import show_validation
from evenflow.core.events import Event
from evenflow.simulate.config import SimulationConfig
from evenflow.simulate.cost import Drift, Regime, Spread, StepCost
from evenflow.simulate.levels import LEVELS, Levels
from evenflow.simulate.pace import LEAST_STEPS, WINDOW_SECONDS, Pace, Pacing, StreamSteps, without_spells
from evenflow.simulate.run import simulate
from evenflow.simulate.validate import Error, Validation, validate, validate_all
from evenflow.workload.trace import TraceRequest
from tuning_runs import device

COST = device()
SCATTERED = replace(
    COST,
    spreads=tuple(Spread(regime, 0.3, 100) for regime in Regime),
    drift=Drift(0.7, 30.0),
    gap_seconds=1e-4,
)
CONFIG = SimulationConfig(policy="vllm", num_blocks=4000, max_num_seqs=16, max_num_batched_tokens=256)
HALF = 12.0


def rows(*, begin: float = 0.0, gap: float = 0.3, num: int = 80) -> list[TraceRequest]:
    rng = Random(7)
    return [TraceRequest(begin + index * gap, rng.randrange(50, 900), rng.randrange(60, 120)) for index in range(num)]


def slow_later(now: float) -> float:
    return 1.0 if now < HALF else 2.0


def live(cost: StepCost, pace: Callable[[float], float], load: Sequence[TraceRequest]) -> list[Event]:
    return list(simulate(load, cost, CONFIG, pace=pace, keep_events=True, seed=5).events)


def of_all(errors: Sequence[Error]) -> dict[str, float]:
    return {f"{error.metric} {error.figure}": error.share for error in errors if error.group == "all"}


def test_a_machine_twice_as_slow_in_the_second_half_is_told_from_the_model() -> None:
    found = validate(live(COST, slow_later, rows()), COST)
    raw = of_all(found.errors)
    assert raw["ITL mean"] < -0.25
    assert raw["E2E mean"] < -0.25
    assert found.paced is not None
    left = of_all(found.paced.errors)
    assert left.keys() == raw.keys()
    assert max(abs(share) for share in left.values()) < 0.01
    assert found.steps.bias is not None
    assert found.steps.bias < -0.2
    assert found.paced.steps.mape == pytest.approx(0.0, abs=2e-3)
    assert found.paced.steps.bias == pytest.approx(0.0, abs=2e-3)
    assert found.paced.pacing.low == pytest.approx(1.0, rel=0.01)
    assert found.paced.pacing.high == pytest.approx(2.0, rel=0.01)
    assert found.paced.pacing.mean == pytest.approx(1.0 / (1.0 + found.steps.bias), rel=0.1)


def test_what_a_cost_gets_wrong_about_prompts_is_not_excused() -> None:
    truth = replace(COST, prefill_context_seconds=4e-7)
    found = validate(live(truth, lambda now: 1.3, rows()), COST)
    assert found.paced is not None
    assert found.paced.pacing.mean == pytest.approx(1.3, rel=1e-3)
    steady = validate(live(truth, lambda now: 1.0, rows()), COST)
    assert steady.paced is not None
    for paced, raw in ((found.paced, found), (steady.paced, steady)):
        assert of_all(raw.errors)["TTFT mean"] < -0.2
        assert of_all(paced.errors)["TTFT mean"] < -0.2
        assert paced.steps.bias is not None
        assert paced.steps.bias < -0.03
    assert of_all(steady.paced.errors)["TTFT mean"] == pytest.approx(of_all(steady.errors)["TTFT mean"], rel=1e-6)


@pytest.mark.parametrize("leap", [True, False])
def test_a_pace_of_one_changes_nothing_to_the_last_bit(leap: bool) -> None:
    plain = simulate(rows(num=30), SCATTERED, CONFIG, keep_events=True, leap=leap)
    paced = simulate(rows(num=30), SCATTERED, CONFIG, keep_events=True, leap=leap, pace=Pace.constant(1.0))
    assert paced.events == plain.events
    assert paced.result.records == plain.result.records


def test_a_leap_goes_at_the_pace_that_steps_go_at() -> None:
    leapt, stepped = (simulate(rows(), SCATTERED, CONFIG, leap=leap, pace=slow_later) for leap in (True, False))
    assert leapt.num_leapt_steps > 100
    assert leapt.result.records == stepped.result.records


def test_a_live_run_at_the_usual_pace_has_the_same_errors_twice() -> None:
    found = validate(live(COST, lambda now: 1.0, rows()), COST)
    assert found.paced is not None
    assert of_all(found.paced.errors) == pytest.approx(of_all(found.errors), abs=1e-9)
    assert found.paced.tokens_per_second == pytest.approx(found.simulated_tokens_per_second)
    assert found.paced.preemptions == found.simulated_preemptions


def test_each_run_has_a_pace_of_its_own_from_its_own_beginning() -> None:
    runs = [
        live(COST, lambda now: 1.0 if now < HALF else 2.0, rows()),
        live(COST, lambda now: 2.0 if now < 1000.0 + HALF else 1.0, rows(begin=1000.0)),
    ]
    found = validate_all(runs, COST)
    assert of_all(found.errors)["ITL mean"] < -0.25
    assert found.paced is not None
    assert max(abs(share) for share in of_all(found.paced.errors).values()) < 0.01
    assert found.paced.steps.mape == pytest.approx(0.0, abs=2e-3)
    alone = [validate(run, COST).paced for run in runs]
    assert found.paced.pacing.num_windows == sum(each.pacing.num_windows for each in alone if each is not None)


def steps(*pieces: tuple[float, int, float]) -> StreamSteps:
    """Of each piece when it begins, how many steps of 10 ms by the cost, and how many times as long they took."""
    starts = [begin + 0.01 * index for begin, num, _ in pieces for index in range(num)]
    measured = [0.01 * ratio for _, num, ratio in pieces for _ in range(num)]
    return StreamSteps(np.array(starts), np.array(measured), np.full(len(starts), 0.01))


def test_a_window_with_too_few_steps_takes_its_neighbours_pace() -> None:
    wide = WINDOW_SECONDS
    found = Pace.of(
        steps(
            (100.0 + wide, 50, 1.0),
            (100.0 + 2 * wide, LEAST_STEPS - 1, 1.0),
            (100.0 + 4 * wide, 50, 4.0),
            (100.0 + 6 * wide, 1, 4.0),
        ),
        100.0,
    )
    assert found is not None
    assert len(found.windows) == 2
    assert [found(each * wide) for each in (0.0, 1.5, 2.0, 3.9, 4.0, 5.0, 99.0)] == pytest.approx(
        [1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 4.0], rel=1e-4
    )


def test_a_stall_is_no_pace_and_steps_that_scatter_take_their_mean() -> None:
    stalled = steps((0.0, 100, 1.0), (WINDOW_SECONDS, 100, 1.0))
    stalled.measured[3] = 1.0  # a hundred times as long as it should be
    found = Pace.of(stalled, 0.0)
    assert found is not None
    assert found(0.0) == found(WINDOW_SECONDS) == pytest.approx(1.0, rel=1e-4)
    factors = np.exp(0.3 * np.random.default_rng(1).standard_normal(2000))
    scattered = steps((0.0, 1000, 1.0), (1000.0, 1000, 1.0))
    scattered.measured[:] *= 1.5 * factors / factors.mean()
    found = Pace.of(scattered, 0.0)
    assert found is not None
    assert found.paced_seconds / found.cost_seconds == pytest.approx(1.5, rel=1e-3)
    assert np.median(scattered.measured / scattered.predicted) < 1.5 * 0.97


def test_a_log_that_says_too_little_or_absurd_things_has_no_pace() -> None:
    assert Pace.of(steps((0.0, 0, 1.0)), 0.0) is None
    assert Pace.of(steps(*((each * 100.0, LEAST_STEPS - 1, 1.0) for each in range(20))), 0.0) is None
    far = Pace.of(steps((0.0, 20, 1.0), (1e300, 20, 3.0)), 0.0)
    assert far is not None
    assert (far(1.0), far(2e300)) == pytest.approx((1.0, 3.0))
    short = validate(live(COST, lambda now: 1.0, [TraceRequest(0.0, 40, 5)]), COST)
    assert short.paced is None
    assert "too few steps in which only streams went on" in printed(short)


def test_what_is_given_as_pace_is_not_drawn_as_slow_spells_again() -> None:
    assert without_spells(SCATTERED, [Pace.constant(1.4)]) is SCATTERED
    varying = [replace(Pace.constant(each), num_steps=20) for each in (0.9, 1.1)]
    assert without_spells(COST, varying) is COST
    left = without_spells(SCATTERED, varying)
    varies = (np.log(1.1 / 0.9) / 2.0) ** 2
    assert left.sigma(Regime.DECODE) ** 2 == pytest.approx(0.09 - varies)
    assert left.drift is not None
    fast = left.sigma(Regime.DECODE) ** 2 * (1.0 - left.drift.share)
    assert fast == pytest.approx(0.3 * 0.09), "what is new with every step stays"
    shaped = replace(SCATTERED, spreads=(Spread(Regime.DECODE, 0.3, 100, tuple(np.exp(0.3 * np.array(LEVELS)))),))
    (spread,) = without_spells(shaped, varying).spreads
    assert np.log(spread.factors[-1] / spread.factors[0]) == pytest.approx(5.0 * left.sigma(Regime.DECODE), rel=1e-4)
    assert spread.sigma == pytest.approx(left.sigma(Regime.DECODE))


def test_spells_that_end_within_a_window_are_still_drawn() -> None:
    """The part of the spells that the means of windows have, against drawn ones."""
    steps_a_window = 75
    drawn = Levels(np.random.default_rng(2), Drift(1.0 - 1e-12, 30.0)).next(steps_a_window * 4000)
    seen = float(drawn.reshape(-1, steps_a_window).mean(axis=1).var() / drawn.var())
    wild = [replace(Pace.constant(each), num_steps=steps_a_window) for each in (0.2, 5.0)]
    left = without_spells(SCATTERED, wild)
    assert left.sigma(Regime.DECODE) ** 2 == pytest.approx(0.09 * (1.0 - 0.7 * seen), rel=0.03)
    assert left.drift is not None
    assert left.drift.share > 0.3


def test_a_scattered_machine_that_slows_down_is_near_at_its_pace() -> None:
    found = validate(live(SCATTERED, slow_later, rows(num=160, gap=0.15)), SCATTERED)
    assert found.paced is not None
    assert of_all(found.errors)["ITL mean"] < -0.2
    assert abs(of_all(found.paced.errors)["ITL mean"]) < 0.03
    assert abs(of_all(found.paced.errors)["ITL P95"]) < 0.1
    assert found.paced.steps.mape is not None
    assert found.steps.mape is not None
    assert found.paced.steps.mape < found.steps.mape


def printed(found: Validation) -> str:
    console = Console(record=True, width=200, highlight=False)
    with console.capture() as text:
        show_validation(found, console, groups=True)
    return text.get()


def test_what_is_left_is_shown_beside_and_judges_nothing() -> None:
    found = validate(live(COST, slow_later, rows()), COST)
    assert found.paced is not None
    assert False in {error.met for error in found.errors}
    assert not any(error.met is not None for error in found.paced.errors)
    text = printed(found)
    assert "asked for  at the live pace" in text
    assert "% slower than the cost says, 1.00 to 2.00 times from window to window" in text
    assert "Whether a demand is met goes by the error without it" in text
    assert "; at the live pace 0." in text
    without = printed(replace(found, paced=None))
    assert "at the live pace" not in without
    assert "-2" in without


def test_the_pace_of_runs_together_is_that_of_all_their_steps() -> None:
    found = Pacing.of([Pace((0.0,), (1.0,), (1.0,), 3.0, 3.0, 9), Pace((0.0,), (2.0,), (2.0, 2.0), 2.0, 1.0, 9)])
    assert (found.mean, found.low, found.high) == pytest.approx((5.0 / 4.0, 1.1, 2.0))
    assert found.num_windows == 3
