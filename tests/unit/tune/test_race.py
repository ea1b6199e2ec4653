"""Live rounds: who is out, and when they have said enough."""

from evenflow.replay.request import Reason
from evenflow.tune.observations import observe
from evenflow.tune.race import Stop, combined, stand
from records import record, result
from tuning_runs import GOAL, cell, noisy

A, B, C = cell("a"), cell("b"), cell("c")


def test_nobody_is_out_after_one_round() -> None:
    standing = stand([{A: noisy(0.1, 1), B: noisy(0.5, 2)}], GOAL, max_rounds=4)
    assert standing.out == ()
    assert standing.stop is None


def test_who_is_told_worse_in_every_round_is_out() -> None:
    rounds = [{A: noisy(0.1, i), B: noisy(0.2, 10 + i), C: noisy(0.1005, 20 + i)} for i in range(2)]
    standing = stand(rounds, GOAL, max_rounds=4)
    assert [out["policy"] for out, _ in standing.out] == ["b"]
    assert standing.out[0][1] == "is worse in TTFT mean, whatever the machine does from round to round"
    assert set(standing.running) == {A, C}
    assert standing.stop is Stop.EQUAL, "those that are left differ by half a per cent"


def test_rounds_that_say_different_things_tell_nothing_however_many_requests_they_had() -> None:
    """b is worse in each, but once by half and once by a tenth: what else does the machine do?"""
    rounds = [{A: noisy(0.3, 1), B: noisy(0.5, 2)}, {A: noisy(0.3, 3), B: noisy(0.35, 4)}]
    standing = stand(rounds, GOAL, max_rounds=4)
    assert standing.out == ()
    ((worse, by),) = standing.against_best
    assert worse == B
    assert by.low is not None
    assert by.low < 0.0 < by.estimate
    assert {each.cell for each in standing.ranking.contenders} == {A}, "the requests alone would have told it"


def test_a_round_in_which_a_request_failed_has_no_logarithm() -> None:
    records = [record(i, i * 0.1, reason=Reason.STALLED if i == 7 else None) for i in range(400)]
    failed = observe(result(*records, warm_up_seconds=0.0), GOAL)
    rounds = [{A: noisy(0.1, i), B: failed} for i in range(2)]
    standing = stand(rounds, GOAL, max_rounds=4)
    assert [cell for cell, _ in standing.out] == [B]
    assert standing.against_best == ()


def test_who_was_better_in_a_round_stays() -> None:
    rounds = [{A: noisy(0.1, 1), B: noisy(0.6, 2)}, {A: noisy(0.2, 3), B: noisy(0.15, 4)}]
    assert stand(rounds, GOAL, max_rounds=4).out == ()


def test_who_misses_a_limit_in_every_round_is_out() -> None:
    rounds = [{A: noisy(0.2, i), B: noisy(0.1, 10 + i, gap=0.06)} for i in range(2)]
    standing = stand(rounds, GOAL, max_rounds=4)
    assert standing.out[0][0] == B
    assert "misses itl_p99" in standing.out[0][1]
    assert standing.stop is Stop.ONE_LEFT


def test_a_race_ends_with_its_rounds() -> None:
    """A few requests tell nothing apart."""
    rounds = [{A: noisy(0.1, i, num=3), B: noisy(0.11, 10 + i, num=3)} for i in range(2)]
    assert stand(rounds, GOAL, max_rounds=2).stop is Stop.OUT_OF_ROUNDS


def test_who_failed_in_the_last_round_is_out() -> None:
    rounds = [{A: noisy(0.1, 1), B: noisy(0.1, 2)}, {A: noisy(0.1, 3)}]
    standing = stand(rounds, GOAL, max_rounds=4)
    assert standing.running == (A,)
    assert standing.out[0][0] == B


def test_rounds_stand_behind_one_another() -> None:
    one = combined([noisy(0.1, 1), noisy(0.1, 2)])
    assert one.num_planned == 800
    assert one.num_time_cells == 512
    assert one.samples["ttft"].blocks.max() == 511
    weights = one.samples["itl"].weights
    assert weights is not None
    assert weights.sum() == 2 * 400 * 3
