"""Reports against torch's log_softmax and a full sort, and the bodies against each other."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evenflow.executors.torch.logits import Logits
from evenflow.executors.torch.logprobs import VERY_UNLIKELY, token_logprobs
from evenflow.kernels.native import Kernels
from unit.kernels.attention_world import FALLBACK, runnable_kernels

EVERY_BODY = pytest.mark.parametrize("kernels", runnable_kernels(), ids=lambda k: k.isa or "torch")


@EVERY_BODY
@given(
    vocab_size=st.sampled_from([1, 6, 256, 700]), seed=st.integers(0, 2**32), num_top=st.integers(0, 20), data=st.data()
)
def test_reports_are_those_of_a_full_sort(
    kernels: Kernels, vocab_size: int, seed: int, num_top: int, data: st.DataObject
) -> None:
    logits = torch.from_numpy(np.random.default_rng(seed).integers(-30, 30, (4, vocab_size)).astype(np.float32) / 4)
    token_ids = [data.draw(st.integers(0, vocab_size - 1)) for _ in range(3)]
    which = [2, 0, 3]
    expected = torch.log_softmax(logits.double(), 1)
    reports = token_logprobs(Logits(logits.clone()), which, token_ids, [num_top, 0, num_top], kernels=kernels)
    for index, (row, report) in enumerate(zip(which, reports, strict=True)):
        values = expected[row].tolist()
        order = sorted(range(vocab_size), key=lambda token_id: (-logits[row, token_id].item(), token_id))
        assert report.token_id == token_ids[index]
        assert report.logprob == pytest.approx(values[token_ids[index]], abs=1e-5)
        assert report.rank == order.index(token_ids[index]) + 1
        assert [token_id for token_id, _ in report.top] == order[: 0 if index == 1 else num_top]
        assert [value for _, value in report.top] == pytest.approx([values[i] for i, _ in report.top], abs=1e-5)


@EVERY_BODY
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_every_body_reports_the_same(kernels: Kernels, dtype: torch.dtype) -> None:
    logits = (torch.randn((5, 50_000), generator=torch.Generator().manual_seed(0)) * 5).to(dtype)
    logits[1, 17], logits[2, 3], logits[3] = torch.nan, torch.inf, -torch.inf
    asked = [4, 1, 2, 3, 0], [3, 17, 5, 9, 49_999], [20, 3, 0, 2, 300]
    expected = token_logprobs(Logits(logits.clone()), *asked, kernels=FALLBACK)
    assert token_logprobs(Logits(logits), *asked, kernels=kernels) == expected


@EVERY_BODY
def test_a_report_is_the_same_in_any_batch(kernels: Kernels) -> None:
    logits = torch.randn((9, 1000), generator=torch.Generator().manual_seed(0))
    together = token_logprobs(Logits(logits), range(9), list(range(9)), [5] * 9, kernels=kernels)
    alone = [token_logprobs(Logits(logits[i : i + 1]), [0], [i], [5], kernels=kernels)[0] for i in range(9)]
    assert together == alone


@EVERY_BODY
def test_spoiled_logits_are_reported_as_numbers(kernels: Kernels) -> None:
    nan, inf = float("nan"), float("inf")
    logits = Logits(torch.tensor([[nan, 1.0, -inf], [nan, nan, nan], [inf, 0.0, -inf]]))
    reports = token_logprobs(logits, range(3), [0, 2, 0], [3, 3, 3], kernels=kernels)
    assert all(math.isfinite(value) for report in reports for _, value in ((0, report.logprob), *report.top))
    assert [report.logprob for report in reports] == [VERY_UNLIKELY, VERY_UNLIKELY, 0.0]
    assert [report.rank for report in reports] == [2, 3, 1]
