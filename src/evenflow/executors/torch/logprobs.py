"""Log-probabilities as reports: of a token, its rank, and the likeliest tokens, from the model's own logits.

"Own" means before bias, penalties, temperature and filters (as in vLLM), so they do not depend on how a request
samples.

    logprob(t) = l(t) - m - log(sum exp(l - m))        m = max l; sums over blocks in fp32, over a row in fp64
    rank(t)    = 1 + how many tokens come before t, larger logits first, the lower id first among equals

A log-probability below -9999 is reported as -9999.0, OpenAI's "very unlikely": a JSON document has no infinity.
"""

from collections.abc import Sequence

import numpy as np
import torch

from evenflow.core.plan import TokenLogprobs
from evenflow.executors.torch.vocab_blocks import Floats, block_maxima, block_sums, largest, make_finite

VERY_UNLIKELY = -9999.0


def token_logprobs(logits: torch.Tensor, token_ids: Sequence[int], num_top: Sequence[int]) -> list[TokenLogprobs]:
    """One report per row of fp32 [n, vocab]: on `token_ids[i]`, with the `num_top[i]` likeliest tokens.

    `logits` changes only where it is not finite.
    """
    maxima = block_maxima(logits)
    make_finite(logits, maxima)
    peaks = maxima.max(1, keepdims=True)
    shares = block_sums((logits - torch.from_numpy(peaks)).exp_()).sum(1, dtype=np.float64)
    log_totals = peaks[:, 0] + np.log(shares)
    values = logits.numpy()
    return [
        _report(values[i], maxima[i], float(log_totals[i]), token_id, top)
        for i, (token_id, top) in enumerate(zip(token_ids, num_top, strict=True))
    ]


def _report(logits: Floats, maxima: Floats, log_total: float, token_id: int, num_top: int) -> TokenLogprobs:
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
