"""Which figures decide: the raw ones, or those with the machine's pace taken off."""

from math import exp
from random import Random

import pytest

from evenflow.tune.blocked import Run
from evenflow.tune.evidence import evidence_of, noise_of


def runs_at(rounds: int, *, slope: float, seed: int = 1, slower: float = 0.0) -> tuple[list[Run], list[float]]:
    """`slower` is how much the pace of b's own runs differs, by no luck."""
    rng, runs, paces = Random(seed), list[Run](), list[float]()
    for number in range(rounds):
        minutes = rng.gauss(0.0, 0.1)
        for each in "abcd":
            pace = minutes + rng.gauss(0.0, 0.2) + (slower if each == "b" else 0.0)
            runs.append(Run(each, number, slope * pace + rng.gauss(0.0, 0.02)))
            paces.append(exp(pace))
    return runs, paces


def expected(paces: list[float]) -> list[float]:
    return [pace - 1.0 for pace in paces]


def test_a_pace_that_explains_the_runs_is_taken_off() -> None:
    runs, paces = runs_at(6, slope=1.2)
    found = evidence_of(runs, paces, expected(paces))
    assert found.is_corrected
    assert found.decides.sd < 0.5 * found.raw.sd
    assert found.why.startswith("corrected decides")
    assert found.decides is found.corrected


def test_a_pace_that_goes_with_the_setting_does_not_decide() -> None:
    """Else a setting whose steps the cost takes for cheaper than they are would be excused for it."""
    runs, paces = runs_at(6, slope=1.2, slower=0.6)
    found = evidence_of(runs, paces, expected(paces))
    assert not found.is_corrected
    assert found.corrected is not None, "it is told all the same"
    assert "went with the setting" in found.why


def test_a_pace_that_explains_nothing_does_not_decide() -> None:
    runs, paces = runs_at(6, slope=0.0)
    found = evidence_of(runs, paces, expected(paces))
    assert not found.is_corrected
    assert "do not bear out" in found.why


def test_without_a_pace_of_every_run_the_raw_figures_decide() -> None:
    runs, paces = runs_at(3, slope=1.0)
    found = evidence_of(runs, [None, *paces[1:]], None)
    assert found.corrected is None
    assert found.decides is found.raw


def test_too_few_runs_to_fit_a_slope() -> None:
    runs, paces = runs_at(1, slope=1.0)
    assert "too few runs" in evidence_of(runs, paces, expected(paces)).why


def test_runs_of_one_setting_in_one_round_are_the_machine_alone() -> None:
    runs = [Run("a", 0, 1.0), Run("a", 0, 1.2), Run("a", 1, 5.0), Run("a", 1, 5.2), Run("b", 0, 3.0)]
    found = noise_of(runs)
    assert found is not None
    assert found.sd == pytest.approx(0.1 * 2**0.5)
    assert found.degrees == 2
    assert noise_of(runs[-1:]) is None
