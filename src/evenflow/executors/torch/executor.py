"""Plans on a real model: requests in and out, one forward pass over all chunks, a token for every chunk that samples.

    left, entered --> rows        swap_out, swap_in --> KV memory
    chunks --> arrays --> model (attention reads and writes the KV memory) --> logits --> tokens

The executor holds nothing that the plan did not say: a row per running request, and the KV memory that block ids name.
"""

import random
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from evenflow.core.plan import Chunk, StepOutcome, StepPlan, TokenLogprobs
from evenflow.core.request import RequestId
from evenflow.executors.torch.host_memory import HostMemory
from evenflow.executors.torch.inputs import InputBuilder, StepInputs
from evenflow.executors.torch.kv_memory import KVMemory
from evenflow.executors.torch.layout import BatchLayout
from evenflow.executors.torch.logits import Logits
from evenflow.executors.torch.logprobs import token_logprobs
from evenflow.executors.torch.rows import RequestRows
from evenflow.executors.torch.sampling import Sampler
from evenflow.executors.torch.touch_ahead import TouchAhead
from evenflow.models.config import ModelConfig

# Rows of logits held at once for prompt log-probabilities: 64 x 49,152 floats are 12.6 MB, a prompt of 4,000 tokens
# would be 786.
LOGPROB_ROWS = 64


class LayerAttention(Protocol):
    """Attention over the KV memory: told the step's layout once, then called by the model for each layer."""

    def begin(self, batch: BatchLayout, /) -> None: ...

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, /) -> Tensor: ...


class Model(Protocol):
    @property
    def config(self) -> ModelConfig: ...

    def hidden(self, token_ids: Tensor, positions: Tensor, attention: LayerAttention, /) -> Tensor:
        """[T] token ids and positions to what the last layer leaves, [T, hidden_size]."""
        ...

    def logits(self, hidden: Tensor, /) -> Tensor | Logits:
        """Rows of `hidden` to fp32 or bf16 [R, vocab_size]; valid until the next call."""
        ...


class TorchExecutor:
    """Implements `core.ports.Executor`. `seeds` gives requests without a seed theirs; `clock` measures a step;
    `num_host_blocks` is the size of the host pool, for the blocks of swapped requests."""

    def __init__(
        self,
        model: Model,
        attention: LayerAttention,
        kv_memory: KVMemory,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_model_len: int,
        seeds: random.Random,
        num_host_blocks: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        block_size = kv_memory.block_size
        self._model = model
        self._attention = attention
        self._host_memory = HostMemory(kv_memory.tensors, num_blocks=num_host_blocks)
        self._clock = clock
        self._rows = RequestRows(max_num_seqs=max_num_seqs, max_blocks_per_seq=-(-max_model_len // block_size))
        self._inputs = InputBuilder(self._rows, max_num_batched_tokens=max_num_batched_tokens, block_size=block_size)
        self._sampler = Sampler(max_num_seqs=max_num_seqs, vocab_size=model.config.vocab_size, seeds=seeds)
        self._ahead = TouchAhead(kv_memory.pool)
        self._block_size = block_size
        self._logprobs: dict[RequestId, int] = {}
        self._prompts: dict[RequestId, tuple[tuple[int, ...], int]] = {}

    @torch.inference_mode()
    def execute(self, plan: StepPlan, /) -> StepOutcome:
        began = self._clock()
        self._seat(plan)
        swap_seconds = self._swap(plan) if plan.swap_out or plan.swap_in else 0.0
        if not plan.chunks:
            return StepOutcome({}, device_seconds=swap_seconds, swap_seconds=swap_seconds)
        inputs = self._inputs.build(plan)
        self._attention.begin(inputs.layout)
        self._ahead.reached(inputs.highest_slot // self._block_size)
        hidden = self._model.hidden(inputs.token_ids, inputs.positions, self._attention)
        prompt_logprobs = self._prompt_logprobs(plan.chunks, hidden) if self._prompts else {}
        sampled, logprobs = self._sample(inputs, hidden)
        return StepOutcome(sampled, logprobs, prompt_logprobs, self._clock() - began, swap_seconds)

    def _seat(self, plan: StepPlan) -> None:
        for request_id in plan.left:
            row = self._rows.leave(request_id)
            if row is not None:
                self._sampler.leave(row)
            self._logprobs.pop(request_id, None)
            self._prompts.pop(request_id, None)
        for entry in plan.entered:
            request, sampling = entry.request, entry.request.sampling
            self._sampler.enter(self._rows.enter(entry), entry)
            if sampling.logprobs is not None:
                self._logprobs[request.id] = sampling.logprobs
            if sampling.prompt_logprobs is not None:
                self._prompts[request.id] = request.prompt_token_ids, sampling.prompt_logprobs

    def _swap(self, plan: StepPlan) -> float:
        """Seconds taken. Out before in: a victim's block may be filled from the host in the same step."""
        began = self._clock()
        self._host_memory.copy_out(plan.swap_out)
        self._host_memory.copy_in(plan.swap_in)
        return self._clock() - began

    def _sample(
        self, inputs: StepInputs, hidden: Tensor
    ) -> tuple[dict[RequestId, int], dict[RequestId, TokenLogprobs]]:
        if not inputs.sampling_ids:
            return {}, {}
        if len(inputs.logit_rows) < inputs.layout.num_tokens:
            hidden = hidden.index_select(0, torch.from_numpy(inputs.logit_rows))
        logits = Logits.of(self._model.logits(hidden))
        tokens = self._sampler.sample(logits, inputs.sampling_rows, inputs.places).tolist()
        sampled = dict(zip(inputs.sampling_ids, tokens, strict=True))
        if not self._logprobs:
            return sampled, {}
        asking = [i for i, request_id in enumerate(inputs.sampling_ids) if request_id in self._logprobs]
        ids = [inputs.sampling_ids[i] for i in asking]
        reports = token_logprobs(logits, asking, [sampled[i] for i in ids], [self._logprobs[i] for i in ids])
        return sampled, dict(zip(ids, reports, strict=True))

    def _prompt_logprobs(self, chunks: Sequence[Chunk], hidden: Tensor) -> dict[RequestId, tuple[TokenLogprobs, ...]]:
        """Reports on the prompt tokens that follow each token of these chunks, a slice of rows at a time."""
        reports: dict[RequestId, tuple[TokenLogprobs, ...]] = {}
        at = 0  # where the chunk begins in `hidden`
        for chunk in chunks:
            if chunk.request_id in self._prompts:
                prompt, num_top = self._prompts[chunk.request_id]
                targets = prompt[chunk.start + 1 : chunk.start + 1 + len(chunk.token_ids)]
                entries: list[TokenLogprobs] = []
                for begin in range(0, len(targets), LOGPROB_ROWS):
                    wanted = targets[begin : begin + LOGPROB_ROWS]
                    logits = Logits.of(self._model.logits(hidden[at + begin : at + begin + len(wanted)]))
                    entries += token_logprobs(logits, range(len(wanted)), wanted, [num_top] * len(wanted))
                if entries:
                    reports[chunk.request_id] = tuple(entries)
            at += len(chunk.token_ids)
        return reports
