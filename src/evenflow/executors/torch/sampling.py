"""From logits to tokens, each request for itself.

A request's token is a function of its own logits, parameters, seed and place in its output; its neighbours and its row
in the batch do not enter. The order of operations is vLLM's:

    1. logit_bias, min_tokens, penalties                       logit_edits.py
    2. temperature 0: the arg-max, lowest id among equals      vocab_blocks.py
       otherwise weights w = exp((logit - max) / temperature)  weights.py
    3. min_p, then top_k, then top_p                           filters.py
    4. draw by (seed, place)                                   draw.py

One face, two bodies that give the same tokens bit for bit: the C++ kernels where there are any, else numpy. Logits stay
as the model gave them: a request that edits has its own row copied first.
"""

import random
from typing import Protocol

import numpy as np

from evenflow.core.plan import Entry
from evenflow.executors.torch.logit_edits import LogitEdits
from evenflow.executors.torch.logits import Logits
from evenflow.executors.torch.native_sampling import NativeSampling
from evenflow.executors.torch.sampling_columns import SamplingColumns
from evenflow.executors.torch.torch_sampling import TorchSampling
from evenflow.executors.torch.vocab_blocks import Ids
from evenflow.executors.torch.weights import LARGEST_VOCABULARY
from evenflow.kernels.native import Kernels, load_kernels


class SamplingBody(Protocol):
    def pick(self, logits: Logits, which: Ids | None, rows: Ids, places: Ids) -> Ids:
        """A token for each request: its logits are row `which[i]` (None: row i), its parameters in place `rows[i]`."""
        ...


class Sampler:
    """`seeds` gives a request without a seed one when it enters; hand in a seeded one for reproducible runs."""

    def __init__(
        self, *, max_num_seqs: int, vocab_size: int, seeds: random.Random, kernels: Kernels | None = None
    ) -> None:
        assert vocab_size <= LARGEST_VOCABULARY
        self._vocab_size = vocab_size
        self._seeds = seeds
        self._columns = SamplingColumns.for_rows(max_num_seqs)
        self._edits: dict[int, LogitEdits] = {}
        table = (load_kernels() if kernels is None else kernels).table
        self._body: SamplingBody = (
            TorchSampling(self._columns) if table is None else NativeSampling(table, self._columns)
        )

    def enter(self, row: int, entry: Entry) -> None:
        sampling = entry.request.sampling
        seed = self._seeds.getrandbits(64) if sampling.seed is None else sampling.seed % 2**64
        self._columns.set(row, sampling, seed=seed, vocab_size=self._vocab_size)
        self._edits.pop(row, None)
        if LogitEdits.wanted(sampling):
            self._edits[row] = LogitEdits(entry, self._vocab_size)

    def leave(self, row: int) -> None:
        self._edits.pop(row, None)

    def sample(self, logits: Logits, rows: Ids, places: Ids) -> Ids:
        """One token per row of `logits`, whose request is in row `rows[i]` and has `places[i]` output tokens already.

        The tokens are taken to be part of the output from now on.
        """
        if self._edits:
            edited = np.array([i for i, row in enumerate(rows.tolist()) if row in self._edits], dtype=np.int64)
            if len(edited):
                return self._sample_beside(edited, logits, rows, places)
        return self._body.pick(logits, None, rows, places)

    def _sample_beside(self, edited: Ids, logits: Logits, rows: Ids, places: Ids) -> Ids:
        """Rows that are edited, apart from the others."""
        tokens = np.empty(len(rows), dtype=np.int64)
        own = Logits(logits.values[edited].float())
        edits = [self._edits[row] for row in rows[edited].tolist()]
        for values, edit, place in zip(own.values.numpy(), edits, places[edited].tolist(), strict=True):
            edit.apply(values, place)
        tokens[edited] = self._body.pick(own, None, rows[edited], places[edited])
        others = np.setdiff1d(np.arange(len(rows)), edited, assume_unique=True)
        if len(others):
            tokens[others] = self._body.pick(logits, others, rows[others], places[others])
        for edit, token_id in zip(edits, tokens[edited].tolist(), strict=True):
            edit.saw(token_id)
        return tokens
