"""What settings differ by, on machines whose truth is known."""

from collections.abc import Mapping
from math import exp, expm1, log
from random import Random

import pytest

from evenflow.tune.blocked import Blocked, Run, blocked, depends_on_setting

ALIKE = {"a": 0.0, "b": 0.0, "c": 0.0, "d": 0.0}


def machine(
    truth: Mapping[str, float], rounds: int, seed: int, *, between: float = 0.4, within: float = 0.1
) -> list[Run]:
    """Slow and fast rounds, and within a round runs that are slow or fast by themselves."""
    rng = Random(seed)
    runs = []
    for number in range(rounds):
        minutes = rng.gauss(0.0, between)
        runs += [Run(each, number, loss + minutes + rng.gauss(0.0, within)) for each, loss in truth.items()]
    return runs


def told(found: Blocked, *, comparisons: int = 1) -> bool:
    return found.difference("a", "b", comparisons=comparisons).excludes_zero


def test_a_true_difference_is_found_under_rounds_that_differ_more() -> None:
    truth = {**ALIKE, "b": log(1.3)}
    found = [blocked(machine(truth, 6, seed)) for seed in range(200)]
    assert sum(told(each) for each in found) >= 190
    assert sum(each.best() == "b" for each in found) == 0
    kept = sum(
        each.difference("a", "b").low <= log(1.3) <= each.difference("a", "b").high  # type: ignore[operator]
        for each in found
    )
    assert 180 <= kept < 200, "95 % of 200 is 190"


@pytest.mark.parametrize("rounds", [2, 3, 6])
def test_the_machine_alone_is_no_difference(rounds: int) -> None:
    """As often as was said, however few the rounds are."""
    called = sum(told(blocked(machine(ALIKE, rounds, seed))) for seed in range(400))
    assert 5 <= called <= 35, "5 % of 400 is 20"


def test_the_best_of_all_is_among_those_that_the_interval_allows() -> None:
    truth = {"a": 0.0, "b": 0.02, "c": 0.05, "d": 0.4}
    held = 0
    for seed in range(200):
        lost = blocked(machine(truth, 4, seed)).lost("b", list(truth))
        assert lost.low is not None
        assert lost.high is not None
        assert 0.0 <= lost.low <= lost.estimate <= lost.high
        held += lost.low <= expm1(0.02) <= lost.high
    assert held >= 185


def test_one_round_tells_nothing_but_the_estimate() -> None:
    found = blocked(machine(ALIKE, 1, 1))
    assert found.difference("a", "b").low is None
    assert found.lost("a", list(ALIKE)).high is None
    assert found.difference("a", "a").low == 0.0


def test_a_setting_that_missed_a_slow_round_is_not_better_for_it() -> None:
    runs = [Run("a", 0, 1.0), Run("b", 0, 1.1), Run("a", 1, 2.0), Run("b", 1, 2.1), Run("a", 2, 9.0)]
    found = blocked(runs)
    assert found.difference("a", "b").estimate == pytest.approx(0.1)
    assert float(found.effects[0]) == pytest.approx(4.0), "in the mean of all rounds"


def test_runs_of_equal_settings_are_pooled() -> None:
    once, twice = machine(ALIKE, 4, 1), machine(ALIKE, 4, 1)
    twice += [Run(run.setting, run.round, run.loss + 0.01) for run in twice if run.setting == "a"]
    assert _width(blocked(twice)) < _width(blocked(once))
    assert blocked(twice).degrees == blocked(once).degrees + 4


def _width(found: Blocked) -> float:
    between = found.difference("a", "b")
    assert between.low is not None
    assert between.high is not None
    return between.high - between.low


def test_what_a_covariate_explains_is_taken_off() -> None:
    """The machine's pace is drawn anew for each run, and does 1.5 times to the loss what it is."""
    rng = Random(4)
    truth = {"a": 0.0, "b": 0.05}
    runs = []
    for number in range(10):
        for each, loss in truth.items():
            pace = rng.gauss(0.0, 0.3)
            runs.append(Run(each, number, loss + 1.5 * pace + rng.gauss(0.0, 0.01), pace))
    raw, corrected = blocked(runs), blocked(runs, with_covariate=True)
    assert corrected.slope == pytest.approx(1.5, abs=0.1)
    assert corrected.sd < raw.sd / 10
    assert corrected.difference("a", "b").estimate == pytest.approx(0.05, abs=0.02)
    assert corrected.difference("a", "b").excludes_zero
    assert not raw.difference("a", "b").excludes_zero


def test_a_dependence_on_the_setting_is_told_by_drawing_again() -> None:
    runs = machine(ALIKE, 6, 0)
    rng = Random(0)
    alike = [exp(rng.gauss(0.0, 0.2)) for _ in runs]
    parted = [value * (1.5 if run.setting == "a" else 1.0) for run, value in zip(runs, alike, strict=True)]
    assert depends_on_setting(runs, alike) > 0.05
    assert depends_on_setting(runs, parted) < 0.05
    chances = [
        depends_on_setting(runs, [Random(seed * 99 + i).random() for i in range(24)], num_draws=99)
        for seed in range(60)
    ]
    assert 0 < sum(chance <= 0.2 for chance in chances) < 25, "a fifth of 60 is 12"
