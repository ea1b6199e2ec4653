"""Whom to choose, of what was measured and what was predicted."""

import pytest

from evenflow.tune.race import stand
from evenflow.tune.ranking import rank
from evenflow.tune.weigh import chosen, weighed
from tuning_runs import GOAL, cell, noisy

A, B = cell("a"), cell("b")
PREDICTED = rank([(A, noisy(0.10, 1)), (B, noisy(0.14, 1))], GOAL)


def test_each_is_trusted_as_far_as_it_is_sure() -> None:
    measured, predicted = {"a": 1.2, "b": 1.0}, {"a": 7.0, "b": 7.1}
    quiet, noisy_ = weighed(measured, 0.0, predicted, 0.05), weighed(measured, 0.5, predicted, 0.05)
    assert quiet == pytest.approx({"a": 0.1, "b": -0.1})
    assert noisy_["a"] < noisy_["b"]
    same = weighed(measured, 0.1, predicted, 0.1)
    assert same["a"] - same["b"] == pytest.approx(0.5 * 0.2 - 0.5 * 0.1)


def test_runs_that_scatter_do_not_overrule_a_prediction() -> None:
    """b is ahead in the mean, by one slow run of a."""
    rounds = [{A: noisy(0.10, 1), B: noisy(0.14, 2)}, {A: noisy(0.30, 3), B: noisy(0.14, 4)}]
    standing = stand(rounds, GOAL, max_rounds=2)
    assert standing.ranking.nearest.cell == B
    choice, why = chosen(standing, PREDICTED, 0.05)
    assert choice.cell == A
    assert why is not None
    assert "scatter by" in why


def test_runs_that_agree_do() -> None:
    rounds = [{A: noisy(0.30, seed), B: noisy(0.14, seed + 1)} for seed in (1, 5)]
    choice, why = chosen(stand(rounds, GOAL, max_rounds=2), PREDICTED, 0.05)
    assert choice.cell == B
    assert why is None


def test_who_misses_a_limit_live_is_not_chosen_however_well_it_was_predicted() -> None:
    rounds = [{A: noisy(mean, 1, gap=0.06), B: noisy(0.3, 2)} for mean in (0.1, 0.3)]
    assert chosen(stand(rounds, GOAL, max_rounds=2), PREDICTED, 0.05)[0].cell == B


def test_one_round_is_as_it_was_measured() -> None:
    choice, why = chosen(stand([{A: noisy(0.3, 1), B: noisy(0.14, 2)}], GOAL, max_rounds=2), PREDICTED, 0.05)
    assert (choice.cell, why) == (B, None)
