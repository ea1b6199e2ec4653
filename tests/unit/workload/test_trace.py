"""Scaling and fitting lengths and times."""

import pytest

from evenflow.core.errors import ConfigError
from evenflow.workload.trace import TraceRequest
from evenflow.workload.transform import fit_to_context, scale_lengths, scale_rate

REQUESTS = (TraceRequest(0.0, 100, 10), TraceRequest(4.0, 1, 1), TraceRequest(6.0, 30, 300))


def test_lengths_scale_and_never_reach_zero() -> None:
    scaled = scale_lengths(REQUESTS, 0.1)
    assert [(r.num_prompt_tokens, r.num_output_tokens) for r in scaled] == [(10, 1), (1, 1), (3, 30)]
    assert [r.arrival_seconds for r in scaled] == [0.0, 4.0, 6.0]


def test_a_higher_rate_brings_the_same_requests_sooner() -> None:
    assert [r.arrival_seconds for r in scale_rate(REQUESTS, 2.0)] == [0.0, 2.0, 3.0]


def test_what_is_too_long_for_the_context_is_cut_and_counted() -> None:
    fitted = fit_to_context(REQUESTS, 50)
    assert [(r.num_prompt_tokens, r.num_output_tokens) for r in fitted.requests] == [(40, 10), (1, 1), (25, 25)]
    assert fitted.num_cut == 2
    assert fit_to_context(REQUESTS, 330).num_cut == 0


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan")])
def test_a_factor_must_be_positive(factor: float) -> None:
    with pytest.raises(ConfigError, match="length_scale must be above 0"):
        scale_lengths(REQUESTS, factor)
    with pytest.raises(ConfigError, match="rate_scale must be above 0"):
        scale_rate(REQUESTS, factor)


def test_a_context_holds_at_least_a_token_in_and_a_token_out() -> None:
    assert fit_to_context(REQUESTS, 2).requests[0] == TraceRequest(0.0, 1, 1)
    with pytest.raises(ConfigError, match="max_model_len must be at least 2"):
        fit_to_context(REQUESTS, 1)
