"""From logits to tokens, each request for itself.

A request's token is a function of its own logits, parameters, seed and place in its output; its neighbours and its row
in the batch do not enter. The order of operations is vLLM's:

    1. logit_bias, min_tokens, penalties                       logit_edits.py
    2. temperature 0: the arg-max, lowest id among equals      vocab_blocks.py
       otherwise weights w = exp((logit - max) / temperature)
    3. min_p, then top_k, then top_p                           filters.py
    4. draw by (seed, place)                                   draw.py

What is batched: arg-max, weights, block sums, the draw of unfiltered rows. What runs row by row: edits and filters, on
a handful of candidates each. Parameters live in columns indexed by the request's row number (rows.py).
"""

import random

import numpy as np
import torch

from evenflow.core.plan import Entry
from evenflow.executors.torch.draw import draw_one, draw_rows
from evenflow.executors.torch.filters import survivors
from evenflow.executors.torch.logit_edits import LogitEdits
from evenflow.executors.torch.vocab_blocks import Floats, Ids, argmax_rows, block_maxima, block_sums, make_finite

# Below this a temperature is 0: dividing by it would leave one token anyway, or overflow.
MIN_TEMPERATURE = 1e-5


class Sampler:
    """`seeds` gives a request without a seed one when it enters; hand in a seeded one for reproducible runs."""

    def __init__(self, *, max_num_seqs: int, vocab_size: int, seeds: random.Random) -> None:
        self._vocab_size = vocab_size
        self._seeds = seeds
        self._temperature = np.ones(max_num_seqs, dtype=np.float32)
        self._top_k = np.zeros(max_num_seqs, dtype=np.int64)
        self._top_p = np.ones(max_num_seqs, dtype=np.float64)
        self._min_p = np.zeros(max_num_seqs, dtype=np.float32)
        self._seed = np.zeros(max_num_seqs, dtype=np.uint64)
        self._draws = np.zeros(max_num_seqs, dtype=np.bool_)
        self._filters = np.zeros(max_num_seqs, dtype=np.bool_)
        self._edits: dict[int, LogitEdits] = {}

    def enter(self, row: int, entry: Entry) -> None:
        sampling = entry.request.sampling
        top_k = 0 if sampling.top_k >= self._vocab_size else sampling.top_k
        seed = self._seeds.getrandbits(64) if sampling.seed is None else sampling.seed % 2**64
        self._temperature[row] = sampling.temperature
        self._top_k[row] = top_k
        self._top_p[row] = sampling.top_p
        self._min_p[row] = sampling.min_p
        self._seed[row] = seed
        self._draws[row] = sampling.temperature >= MIN_TEMPERATURE and top_k != 1
        self._filters[row] = top_k > 0 or sampling.top_p < 1.0 or sampling.min_p > 0.0
        self._edits.pop(row, None)
        if LogitEdits.wanted(sampling):
            self._edits[row] = LogitEdits(entry, self._vocab_size)

    def leave(self, row: int) -> None:
        self._edits.pop(row, None)

    def sample(self, logits: torch.Tensor, rows: Ids, places: Ids) -> Ids:
        """One token per row of `logits` (fp32 [n, vocab], overwritten), whose request is in row `rows[i]` and has
        `places[i]` output tokens already. The tokens are taken to be part of the output from now on."""
        values = logits.numpy()
        edits = (
            [(i, self._edits[row]) for i, row in enumerate(rows.tolist()) if row in self._edits] if self._edits else []
        )
        for i, edit in edits:
            edit.apply(values[i], int(places[i]))
        maxima = block_maxima(logits)
        make_finite(logits, maxima)
        draws = np.flatnonzero(self._draws[rows])
        if len(draws) == len(rows):
            tokens = self._draw(logits, maxima, rows, places)
        else:
            tokens = argmax_rows(values, maxima)
            if len(draws):
                tokens[draws] = self._draw(logits[torch.from_numpy(draws)], maxima[draws], rows[draws], places[draws])
        for i, edit in edits:
            edit.saw(int(tokens[i]))
        return tokens

    def _draw(self, logits: torch.Tensor, maxima: Floats, rows: Ids, places: Ids) -> Ids:
        peaks = torch.from_numpy(maxima.max(1, keepdims=True))
        temperature = self._temperature[rows][:, None]
        weights = logits.sub_(peaks)
        if (temperature != 1.0).any():
            weights.div_(torch.from_numpy(temperature))
        weights.exp_()
        seeds = self._seed[rows]
        filters = self._filters[rows]
        if not filters.any():
            return draw_rows(weights, np.arange(len(rows)), seeds, places)
        tokens = np.empty(len(rows), dtype=np.int64)
        plain = np.flatnonzero(~filters)
        if len(plain):
            tokens[plain] = draw_rows(weights, plain, seeds[plain], places[plain])
        maxima = block_maxima(weights)
        totals = block_sums(weights).sum(1, dtype=np.float64)
        values = weights.numpy()
        for i in np.flatnonzero(filters):
            row = rows[i]
            ids = survivors(
                values[i],
                maxima[i],
                float(totals[i]),
                top_k=int(self._top_k[row]),
                top_p=float(self._top_p[row]),
                min_p=float(self._min_p[row]),
            )
            tokens[i] = draw_one(ids, values[i][ids], seeds[i], int(places[i]))
        return tokens
