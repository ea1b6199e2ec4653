"""Reports against torch's log_softmax and a full sort."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evenflow.executors.torch.logprobs import VERY_UNLIKELY, token_logprobs


@given(st.sampled_from([1, 6, 256, 700]), st.integers(0, 2**32), st.integers(0, 20), st.data())
def test_reports_are_those_of_a_full_sort(vocab_size: int, seed: int, num_top: int, data: st.DataObject) -> None:
    logits = torch.from_numpy(np.random.default_rng(seed).integers(-30, 30, (3, vocab_size)) / np.float32(4))
    token_ids = [data.draw(st.integers(0, vocab_size - 1)) for _ in range(3)]
    expected = torch.log_softmax(logits.double(), 1)
    for row, report in enumerate(token_logprobs(logits.clone(), token_ids, [num_top, 0, num_top])):
        values = expected[row].tolist()
        order = sorted(range(vocab_size), key=lambda token_id: (-logits[row, token_id].item(), token_id))
        assert report.token_id == token_ids[row]
        assert report.logprob == pytest.approx(values[token_ids[row]], abs=1e-5)
        assert report.rank == order.index(token_ids[row]) + 1
        assert [token_id for token_id, _ in report.top] == order[: 0 if row == 1 else num_top]
        assert [value for _, value in report.top] == pytest.approx([values[i] for i, _ in report.top], abs=1e-5)


def test_a_report_is_the_same_in_any_batch() -> None:
    logits = torch.randn((9, 1000), generator=torch.Generator().manual_seed(0))
    together = token_logprobs(logits, list(range(9)), [5] * 9)
    assert together == [token_logprobs(logits[i : i + 1], [i], [5])[0] for i in range(9)]


def test_spoiled_logits_are_reported_as_numbers() -> None:
    nan, inf = float("nan"), float("inf")
    logits = torch.tensor([[nan, 1.0, -inf], [nan, nan, nan], [inf, 0.0, -inf]])
    reports = token_logprobs(logits, [0, 2, 0], [3, 3, 3])
    assert all(math.isfinite(value) for report in reports for _, value in ((0, report.logprob), *report.top))
    assert [report.logprob for report in reports] == [VERY_UNLIKELY, VERY_UNLIKELY, 0.0]
    assert [report.rank for report in reports] == [2, 3, 1]
