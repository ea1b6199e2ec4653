"""What one request does to its logits before a token is picked: bias, minimum length, penalties.

    logits[t] += bias                                    logit_bias
    logits[t]  = -inf for every ending token             while fewer than min_tokens tokens are out
    logits[t]  = l / r if l > 0 else l * r               repetition_penalty r, once for every token of prompt and output
    logits[t] -= frequency * count + presence            for tokens of the output, count times each

The order and the meaning are vLLM's (presence and frequency as OpenAI defines them). Counts are kept per request and
grow by one token a step, so a step costs O(distinct tokens seen) and not O(context).
"""

from collections.abc import Sequence

import numpy as np

from evenflow.core.plan import Entry
from evenflow.core.request import SamplingParams
from evenflow.executors.torch.vocab_blocks import Floats, Ids


class TokenCounts:
    """The distinct tokens of a request, in order of appearance, and how often each is in the output."""

    __slots__ = ("_counts", "_ids", "_index")

    def __init__(self, prompt: Sequence[int], output: Sequence[int]) -> None:
        self._index = {token_id: place for place, token_id in enumerate(dict.fromkeys(prompt))}
        self._ids = np.zeros(len(self._index) + 64, dtype=np.int64)
        self._ids[: len(self._index)] = list(self._index)
        self._counts = np.zeros(len(self._ids), dtype=np.float32)
        for token_id in output:
            self.add(token_id)

    def add(self, token_id: int) -> None:
        place = self._index.setdefault(token_id, len(self._index))
        if place == len(self._ids):
            self._ids = np.concatenate((self._ids, np.zeros_like(self._ids)))
            self._counts = np.concatenate((self._counts, np.zeros_like(self._counts)))
        self._ids[place] = token_id
        self._counts[place] += 1.0

    @property
    def ids(self) -> Ids:
        return self._ids[: len(self._index)]

    @property
    def output_counts(self) -> Floats:
        return self._counts[: len(self._index)]


def penalises(sampling: SamplingParams) -> bool:
    return sampling.presence_penalty != 0.0 or sampling.frequency_penalty != 0.0 or sampling.repetition_penalty != 1.0


class LogitEdits:
    """The edits of one request, from the step in which it enters."""

    __slots__ = ("_banned", "_bias", "_biased", "_counts", "_sampling")

    def __init__(self, entry: Entry, vocab_size: int) -> None:
        request, sampling = entry.request, entry.request.sampling
        num_prompt = len(request.prompt_token_ids)
        self._sampling = sampling
        bias = dict[int, float]()
        for token_id, value in sampling.logit_bias:
            bias[token_id] = bias.get(token_id, 0.0) + value
        self._biased = np.array(list(bias), dtype=np.int64)
        self._bias = np.array(list(bias.values()), dtype=np.float32)
        endings = {*sampling.stop_token_ids, *(() if sampling.ignore_eos else request.eos_token_ids)}
        self._banned = np.array(sorted(t for t in endings if t < vocab_size), dtype=np.int64)
        self._counts = (
            TokenCounts(request.prompt_token_ids, entry.token_ids[num_prompt:]) if penalises(sampling) else None
        )

    @staticmethod
    def wanted(sampling: SamplingParams) -> bool:
        return bool(sampling.logit_bias) or sampling.min_tokens > 0 or penalises(sampling)

    def apply(self, logits: Floats, num_output_tokens: int) -> None:
        """Edit one row, in place, from which output token number `num_output_tokens` (from 0) will be picked."""
        if len(self._biased):
            logits[self._biased] += self._bias
        if num_output_tokens < self._sampling.min_tokens:
            logits[self._banned] = -np.inf
        if self._counts is not None:
            self._penalise(logits, self._counts)

    def _penalise(self, logits: Floats, counts: TokenCounts) -> None:
        sampling = self._sampling
        ids, output_counts = counts.ids, counts.output_counts
        values = logits[ids]
        repetition = np.float32(sampling.repetition_penalty)
        if repetition != 1.0:
            values = np.where(values > 0, values / repetition, values * repetition)
        values -= np.float32(sampling.frequency_penalty) * output_counts
        values -= np.float32(sampling.presence_penalty) * (output_counts > 0)
        logits[ids] = values

    def saw(self, token_id: int) -> None:
        """This token is now part of the output."""
        if self._counts is not None:
            self._counts.add(token_id)
