"""Log-probabilities as reports: of a token, its rank, and the likeliest tokens, from the model's own logits.

"Own" means before bias, penalties, temperature and filters (as in vLLM), so they do not depend on how a request
samples.

    logprob(t) = l(t) - (peak + log(sum of masses))        masses: weights.py, at temperature 1
    rank(t)    = 1 + how many tokens come before t, larger logits first, the lower id first among equals

A log-probability below -9999 is reported as -9999.0, OpenAI's "very unlikely": a JSON document has no infinity.
As in sampling, there are two bodies with the same bits: C++ kernels, and numpy.
"""

from collections.abc import Sequence
from ctypes import byref

import numpy as np

from evenflow.core.plan import TokenLogprobs
from evenflow.executors.torch.draw import natural_log
from evenflow.executors.torch.logits import Logits
from evenflow.executors.torch.vocab_blocks import Floats, block_maxima, largest, make_finite
from evenflow.executors.torch.weights import masses, weigh
from evenflow.kernels.abi import DTYPE_CODES, KernelTable, LogprobArgs
from evenflow.kernels.native import Kernels, load_kernels

VERY_UNLIKELY = -9999.0


def token_logprobs(
    logits: Logits,
    which: Sequence[int],
    token_ids: Sequence[int],
    num_top: Sequence[int],
    *,
    kernels: Kernels | None = None,
) -> list[TokenLogprobs]:
    """One report per row `which[i]`: on `token_ids[i]`, with the `num_top[i]` likeliest tokens."""
    if not len(which):
        return []
    table = (load_kernels() if kernels is None else kernels).table
    if table is not None:
        return _native_reports(table, logits, which, token_ids, num_top)
    values = logits.values[list(which)].float()
    maxima = block_maxima(values)
    make_finite(values, maxima)
    return [
        _report(row, row_maxima, token_id, top)
        for row, row_maxima, token_id, top in zip(values.numpy(), maxima, token_ids, num_top, strict=True)
    ]


def _report(logits: Floats, maxima: Floats, token_id: int, num_top: int) -> TokenLogprobs:
    peak = maxima.max(keepdims=True)
    mass = masses(weigh(logits[None], peak, np.ones(1, dtype=np.float32))).sum(keepdims=True)
    log_total = float(peak[0]) + float(natural_log(mass[0])[0])
    value = logits[token_id]
    rank = 1 + np.count_nonzero(logits > value) + np.count_nonzero(logits[:token_id] == value)
    top = largest(logits, maxima, num_top).tolist() if num_top else []
    return TokenLogprobs(
        token_id,
        _logprob(value, log_total),
        int(rank),
        tuple([(other, _logprob(logits[other], log_total)) for other in top]),
    )


def _logprob(value: np.float32, log_total: float) -> float:
    return max(float(value) - log_total, VERY_UNLIKELY)


def _native_reports(
    table: KernelTable, logits: Logits, which: Sequence[int], token_ids: Sequence[int], num_top: Sequence[int]
) -> list[TokenLogprobs]:
    values, count = logits.values, len(which)
    vocab_size = values.shape[1]
    assert values.stride(1) == 1 and all(0 <= row < len(values) for row in which)
    num_top = [min(wanted, vocab_size) for wanted in num_top]
    asked = np.array((which, token_ids, num_top), dtype=np.int64)
    ranks = np.empty(count, dtype=np.int64)
    reported = np.empty(count, dtype=np.float64)
    top_ids = np.empty((count, max(num_top)), dtype=np.int64)
    top = np.empty(top_ids.shape, dtype=np.float64)
    args = LogprobArgs(
        logits=values.data_ptr(),
        logit_rows=asked[0].ctypes.data,
        token_ids=asked[1].ctypes.data,
        num_top=asked[2].ctypes.data,
        logprobs=reported.ctypes.data,
        ranks=ranks.ctypes.data,
        top_ids=top_ids.ctypes.data,
        top_logprobs=top.ctypes.data,
        stride=values.stride(0),
        num_rows=count,
        most_top=top_ids.shape[1],
        vocab=vocab_size,
        dtype=DTYPE_CODES[values.dtype],
    )
    table.logprobs(byref(args))
    return [
        TokenLogprobs(token_id, logprob, rank, tuple(zip(ids[:wanted], likeliest[:wanted], strict=True)))
        for token_id, logprob, rank, ids, likeliest, wanted in zip(
            token_ids, reported.tolist(), ranks.tolist(), top_ids.tolist(), top.tolist(), num_top, strict=True
        )
    ]
