"""The scatter of steps: factors of any shape, and drift."""

import numpy as np
import pytest

from evenflow.simulate.cost import Drift
from evenflow.simulate.levels import LEVELS, Levels, drift_of, factors_at, factors_of


def levels(drift: Drift | None, count: int, piece: int = 4096) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    made = Levels(np.random.default_rng(3), drift)
    return np.concatenate([made.next(piece) for _ in range(count // piece)])


def test_factors_keep_the_shape_that_was_measured_and_have_mean_one() -> None:
    rng = np.random.default_rng(0)
    two_speeds = np.where(rng.random(20_000) < 0.3, 2.0, 0.8) * np.exp(0.02 * rng.standard_normal(20_000))
    drawn = factors_at(levels(None, 40_960), factors_of(two_speeds))
    assert drawn.mean() == pytest.approx(1.0, abs=0.01)
    expected = two_speeds / two_speeds.mean()
    for percent in (5, 25, 50, 90, 99):
        assert np.percentile(drawn, percent) == pytest.approx(np.percentile(expected, percent), rel=0.05)


@pytest.mark.parametrize("drift", [None, Drift(0.7, 30.0)], ids=["none", "slow"])
def test_levels_are_standard_normal_with_and_without_drift(drift: Drift | None) -> None:
    drawn = levels(drift, 40_960)
    assert drawn.std() == pytest.approx(1.0, abs=0.06)
    assert abs(drawn.mean()) < 0.08


def test_a_drift_is_found_again_across_blocks() -> None:
    drawn = levels(Drift(0.7, 30.0), 40_960, piece=64)
    found = drift_of(0.1 * drawn, np.ones(len(drawn), dtype=np.bool_))
    assert found is not None
    assert found.share == pytest.approx(0.7, abs=0.05)
    assert found.num_steps == pytest.approx(30.0, rel=0.3)


def test_steps_that_know_nothing_of_each_other_have_no_drift() -> None:
    drawn = levels(Drift(0.7, 30.0), 4096)
    assert drift_of(np.random.default_rng(1).permutation(drawn), np.ones(4096, dtype=np.bool_)) is None
    assert drift_of(drawn, np.zeros(4096, dtype=np.bool_)) is None, "no two of them follow each other"


def test_the_levels_go_from_one_side_to_the_other() -> None:
    assert list(LEVELS) == sorted(LEVELS)
    assert LEVELS[0] == -LEVELS[-1]
