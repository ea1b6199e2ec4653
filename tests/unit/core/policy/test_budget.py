"""How many tokens a step may feed."""

import pytest

from evenflow.core.policy.budget import FixedBudget, ItlTarget
from evenflow.core.request import Request, RequestId, RequestState, SamplingParams
from evenflow.core.step_time import StepTimeModel, StepWork


def decodes(count: int, context: int = 100) -> list[RequestState]:
    request = Request(RequestId("a"), (1,) * context, SamplingParams(), 0.0)
    return [RequestState(request, key=(0,), num_computed_tokens=context) for _ in range(count)]


def model(*, per_prefill_token: float = 0.001) -> StepTimeModel:
    """Of an engine whose steps take 10 ms, 1 ms for each decode and so much for each prefill token."""
    fitted = StepTimeModel()
    for index in range(200):
        work = StepWork(index % 8, 100 * (index % 8), index % 5 * 16, 0)
        fitted.observe(work, 0.01 + 0.001 * work.decode_tokens + per_prefill_token * work.prefill_tokens)
    return fitted


def test_a_fixed_budget_is_the_same_in_every_step() -> None:
    assert [FixedBudget(7).tokens(decodes(n), 0) for n in range(3)] == [7, 7, 7]


def test_the_target_leaves_as_many_prefill_tokens_as_fit_beside_the_decodes() -> None:
    budget = ItlTarget(0.05, 0.0, 4, 4096, model())
    assert budget.tokens(decodes(4), 0) == pytest.approx(4 + 36, abs=1)
    assert budget.tokens(decodes(20), 0) == pytest.approx(20 + 20, abs=1)


def test_a_step_that_nobody_waits_for_is_as_large_as_may_be() -> None:
    assert ItlTarget(0.05, 0.0, 4, 4096, model()).tokens([], 0) == 4096


def test_prefills_progress_even_if_the_target_is_missed() -> None:
    assert ItlTarget(0.005, 0.0, 4, 4096, model()).tokens(decodes(8), 0) == 12


def test_prefills_have_their_share_of_the_target_in_time_whatever_the_decodes_take() -> None:
    """20 of 40 ms; the decodes alone take 90."""
    assert ItlTarget(0.04, 0.5, 4, 4096, model()).tokens(decodes(80), 0) == pytest.approx(80 + 20, abs=1)


def test_the_largest_step_stays_the_largest() -> None:
    assert ItlTarget(9.0, 0.0, 4, 32, model()).tokens(decodes(8), 0) == 32


@pytest.mark.parametrize(("num_decodes", "least"), [(0, 32), (1, 5), (20, 24), (31, 32)])
def test_the_smallest_budget_that_a_step_can_have(num_decodes: int, least: int) -> None:
    assert ItlTarget(0.05, 0.0, 4, 32, model()).least(num_decodes) == least
    assert FixedBudget(32).least(num_decodes) == 32
