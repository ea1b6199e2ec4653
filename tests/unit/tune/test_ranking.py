"""Who is best, who may be, and who keeps the limits, as far as the data say."""

import numpy as np
import pytest

from evenflow.tune.confidence_set import confidence_set
from evenflow.tune.effects import effects, frontier, relative_difference
from evenflow.tune.miss import explain_miss
from evenflow.tune.objective import parse_goal
from evenflow.tune.ranking import Kept, rank
from evenflow.tune.resampled import Figures
from evenflow.tune.space import Axis, Cell, Space
from evenflow.tune.telling import told_miss
from tuning_runs import GOAL, cell, noisy, run


def test_the_set_holds_what_chance_could_have_made_the_best() -> None:
    rng = np.random.default_rng(1)
    luck = rng.normal(size=(800, 1))  # the same for all: it cancels out
    own = rng.normal(size=(800, 4)) * 0.1
    observed = np.array([1.0, 1.05, 2.0, 9.0])
    assert confidence_set(Figures(observed, observed + luck + own)) == (0, 1)


def test_the_set_is_empty_of_nobody() -> None:
    alike = Figures(np.full(3, 2.0), np.full((100, 3), 2.0))
    assert confidence_set(alike) == (0, 1, 2)
    lost = Figures(np.array([1.0, np.inf]), np.array([[1.0, np.inf]] * 100))
    assert confidence_set(lost) == (0,)


def test_the_set_keeps_the_best_as_often_as_it_says() -> None:
    """Of many draws in which all are equally good, few throw the first one out."""
    thrown_out = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        samples = rng.normal(size=(60, 5))
        draws = rng.multinomial(60, np.full(60, 1 / 60), size=200) / 60
        thrown_out += 0 not in confidence_set(Figures(samples.mean(axis=0), draws @ samples))
    assert 0 < thrown_out <= 20, "5 % of 200 is 10"


def test_what_is_due_to_the_requests_does_not_hide_a_small_difference() -> None:
    ranking = rank([(cell("a"), noisy(0.100, 1)), (cell("b"), noisy(0.105, 2)), (cell("c"), noisy(0.100, 3))], GOAL)
    assert {each.cell["policy"] for each in ranking.contenders} == {"a", "c"}


def test_a_prediction_within_the_tolerance_stays_in_the_race() -> None:
    runs = [(cell("a"), noisy(0.100, 1)), (cell("b"), noisy(0.105, 2)), (cell("c"), noisy(0.3, 3))]
    ranking = rank(runs, GOAL, tolerance=0.05)
    assert [each.cell["policy"] for each in ranking.contenders] == ["a", "b"]


def test_who_misses_a_limit_is_not_best_however_fast() -> None:
    ranking = rank([(cell("fast"), noisy(0.1, 1, gap=0.06)), (cell("legal"), noisy(0.2, 2))], GOAL)
    assert ranking.best is not None
    assert ranking.best.cell["policy"] == "legal"
    fast = ranking.of(cell("fast"))
    assert fast is not None
    assert fast.limits[0].kept is Kept.NO
    assert fast.limits[0].ratio == pytest.approx(1.2, rel=0.01)
    assert [each.cell["policy"] for each in ranking.contenders] == ["legal"]


def test_among_equals_room_under_the_limit_decides() -> None:
    goal = parse_goal("throughput", "itl_p99=50ms")
    runs = [(cell("near"), noisy(0.1, 1, gap=0.045, goal=goal)), (cell("far"), noisy(0.1, 2, gap=0.01, goal=goal))]
    ranking = rank(runs, goal)
    assert ranking.best is not None
    assert ranking.best.cell["policy"] == "far"


def test_twins_are_tried_once() -> None:
    ranking = rank([(cell("a"), noisy(0.1, 1)), (cell("b"), noisy(0.1, 1))], GOAL)
    assert [each.cell["policy"] for each in ranking.contenders] == ["a"]
    assert ranking.twins == ((cell("b"),),)


def test_without_a_legal_cell_the_nearest_miss_is_told_with_what_limits_it() -> None:
    space = Space((Axis("max_num_seqs", (1, 2, 4)),))
    cells = list(space.cells())
    runs = [
        (each, noisy(0.1, index, gap=gap))
        for index, (each, gap) in enumerate(zip(cells, (0.2, 0.1, 0.06), strict=True))
    ]
    ranking = rank(runs, GOAL)
    assert ranking.best is None
    assert ranking.nearest.cell == cells[2]
    said = list(explain_miss(ranking.nearest, ranking, space))
    assert "nearest miss is seqs 4: ITL P99 60" in said[0]
    assert "out of its reach" in said[1]
    assert "largest max_num_seqs" in said[2]


def test_of_equal_ones_the_miss_names_the_one_that_is_chosen() -> None:
    space = Space((Axis("max_num_seqs", (32, 64, 128)),))
    runs = [(each, noisy(0.1, 1, gap=0.2)) for each in space.cells()]
    ranking = rank(runs, GOAL)
    choice = ranking.contenders[0]
    assert choice.cell["max_num_seqs"] == 128
    assert {each["max_num_seqs"] for each in ranking.equal_to(choice.cell)} == {32, 64}
    assert ranking.nearest == choice
    nearest, out_of_reach, *_ = explain_miss(choice, ranking, space)
    assert "nearest miss is seqs 128: " in nearest
    assert "(seqs 128); 50ms is out of its reach" in out_of_reach.replace(" ms", "ms")


def test_how_far_a_limit_is_missed_is_told_with_what_it_is() -> None:
    told = [told_miss(ratio).removeprefix("missed") for ratio in (1.25, 388.2, 12_345.6, float("inf"))]
    assert told == [": 125% of the limit", ": 388× the limit", ": 12,346× the limit", " altogether"]


def test_limits_that_pull_against_each_other_are_told_so() -> None:
    goal = parse_goal("throughput", "ttft_p95=200ms,itl_p99=50ms")
    runs = [
        (cell("a"), run(lambda i, rng: 0.1, gap=0.06, goal=goal)),
        (cell("b"), run(lambda i, rng: 0.3, gap=0.02, goal=goal)),
    ]
    ranking = rank(runs, goal)
    said = list(explain_miss(ranking.nearest, ranking, Space((Axis("policy", ("a", "b")),))))
    assert "pull against each other" in said[1]


def test_the_frontier_has_what_nothing_beats_in_everything() -> None:
    runs = [
        (cell("early"), noisy(0.1, 1, gap=0.04)),
        (cell("smooth"), noisy(0.3, 2, gap=0.01)),
        (cell("neither"), noisy(0.3, 3, gap=0.04)),
    ]
    assert [each.cell["policy"] for each in frontier(rank(runs, GOAL).candidates)] == ["early", "smooth"]


def test_a_knob_is_moved_alone_and_compared_in_pairs() -> None:
    space = Space((Axis("max_num_seqs", (1, 2)), Axis("policy", ("a", "b"))))
    cells = {each.key: each for each in space.cells()}
    runs = [(each, noisy(0.1 + 0.1 * index, index)) for index, each in enumerate(cells.values())]
    ranking = rank(runs, GOAL)
    assert ranking.best is not None
    seats, policy = effects(ranking, space, ranking.best)
    assert [setting.value for setting in seats.settings] == [1, 2]
    assert seats.settings[0].change is None
    change = policy.settings[1].change
    assert change is not None
    assert change.low is not None
    assert change.high is not None
    assert change.low < change.estimate < change.high
    assert change.excludes_zero
    assert change.estimate == pytest.approx(0.1 / 0.21, rel=0.05)


def test_the_same_run_differs_by_nothing() -> None:
    ranking = rank([(cell("a"), noisy(0.1, 1)), (cell("b"), noisy(0.1, 1))], GOAL)
    a, b = ranking.candidates
    assert relative_difference(a, b, GOAL).estimate == 0.0
    assert isinstance(a.cell, Cell)
