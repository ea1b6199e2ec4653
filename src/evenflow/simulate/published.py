"""Costs of GPUs from published timings: the table of the Splitwise simulator (Patel et al., ISCA 2024).

Each row of `perf_model.csv` is a batch of equal prompts on one machine: `prompt_time` is one step that prefills them
all, `token_time` the mean step that decodes them. So a row is two steps whose work is known, at the two edges of what a
serving engine does; nothing in it mixes prefill with decode, and nothing in it chunks a prompt.
"""

import csv
import re
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import NamedTuple

from evenflow.simulate.cost import Identity, Kind, StepCost, StepFeatures
from evenflow.simulate.cost_file import CostError
from evenflow.simulate.fit import StepSample, fit_cost
from evenflow.simulate.machine import this_engine
from evenflow.workload.rows import open_text
from evenflow.workload.trace import TraceError

_COLUMNS = ("model", "hardware", "prompt_size", "batch_size", "token_size", "prompt_time", "token_time")
_MAX_ROWS = 1_000_000
_MOST_DEVICES, _MOST_TOKENS = 1024, 10_000_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # it becomes a file's
_GIGA = 10**9
_USABLE = 0.9  # of the memory; the rest is activations and the runtime's
_GPU_MEMORY = 80 * _GIGA


class _Size(NamedTuple):
    """In bytes: all weights in bf16, and keys and values of one token."""

    weights: int
    kv_per_token: int


# Llama-2-70B: 80 layers, 8 KV heads of 128. BLOOM-176B: 70 layers, 112 heads of 128.
_SIZES = {"llama2-70b": _Size(138 * _GIGA, 2 * 80 * 8 * 128 * 2), "bloom-176b": _Size(352 * _GIGA, 2 * 70 * 14336 * 2)}


class Setup(NamedTuple):
    model: str
    hardware: str
    tensor_parallel: int

    @property
    def name(self) -> str:
        return f"{self.hardware}-x{self.tensor_parallel}-{self.model}"


def read_timings(path: Path) -> Mapping[Setup, list[StepSample]]:
    """Raises CostError naming the row. Steps of one measured batch are next to each other, batches in random order: so
    what is held out of a fit in one piece is whole batches that the fit has not seen."""
    by_batch: dict[Setup, dict[_Batch, list[StepSample]]] = defaultdict(lambda: defaultdict(list))
    for number, row in _rows(path):
        try:
            setup = Setup(row["model"], row["hardware"], int(row["tensor_parallel"]))
            batch = int(row["prompt_size"]), int(row["batch_size"]), int(row["token_size"])
            prompt_seconds, token_seconds = float(row["prompt_time"]) / 1e3, float(row["token_time"]) / 1e3
        except (TypeError, ValueError):
            raise CostError(f"{path} row {number}: a number is missing or is none") from None
        if not _NAME.fullmatch(setup.model) or not _NAME.fullmatch(setup.hardware):
            raise CostError(f"{path} row {number}: model and hardware must be names (letters, digits, '.', '_', '-')")
        if not 1 <= setup.tensor_parallel <= _MOST_DEVICES or max(batch) > _MOST_TOKENS:
            raise CostError(
                f"{path} row {number}: tensor_parallel must be between 1 and {_MOST_DEVICES}, and sizes at most "
                f"{_MOST_TOKENS}"
            )
        if min(batch) < 1 or not (0.0 < prompt_seconds < 1e4 and 0.0 < token_seconds < 1e4):
            raise CostError(f"{path} row {number}: sizes must be at least 1, and times above 0 ms")
        by_batch[setup][batch] += _samples(*batch, prompt_seconds, token_seconds)
    return {setup: _shuffled(_possible(batches)) for setup, batches in by_batch.items()}


_Batch = tuple[int, int, int]
_LESS = 0.9


def _possible(batches: Mapping[_Batch, list[StepSample]]) -> Mapping[_Batch, list[StepSample]]:
    """Without those in which more prompts of one length took less time than fewer did: whatever was measured there
    (64 prompts in an eighth of what 32 took, where memory holds no 64), it was not one step that prefilled them all."""
    kept: dict[_Batch, list[StepSample]] = {}
    longest: dict[int, float] = {}
    for prompt, size, output in sorted(batches):
        samples = batches[prompt, size, output]
        prefills = sorted(sample.seconds for sample in samples if sample.features.prefill_tokens)
        median = prefills[len(prefills) // 2]
        if median >= _LESS * longest.get(prompt, 0.0):
            kept[prompt, size, output] = samples
            longest[prompt] = max(longest.get(prompt, 0.0), median)
    return kept


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        with open_text(path) as file:
            reader = csv.DictReader(file)
            missing = [name for name in (*_COLUMNS, "tensor_parallel") if name not in (reader.fieldnames or ())]
            if missing:
                raise CostError(f"{path} has no column {', '.join(missing)}; it is not Splitwise's perf_model.csv")
            for number, row in enumerate(reader, start=1):
                if number > _MAX_ROWS:
                    raise CostError(f"{path} has more than {_MAX_ROWS} rows")
                yield number, row
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error, TraceError) as error:
        raise CostError(f"cannot read {path}: {error}") from error


def _samples(prompt: int, batch: int, output: int, prompt_seconds: float, token_seconds: float) -> list[StepSample]:
    prefill = StepFeatures(batch * prompt, 0, batch * prompt * (prompt + 1) // 2, 0, batch)
    decode = StepFeatures(0, batch, 0, batch * (prompt + output // 2), batch)
    return [StepSample(prefill, prompt_seconds), StepSample(decode, token_seconds)]


def _shuffled(batches: Mapping[_Batch, list[StepSample]]) -> list[StepSample]:
    keys = sorted(batches)
    Random(0).shuffle(keys)
    return [sample for key in keys for sample in batches[key]]


def cost_of_timings(setup: Setup, samples: list[StepSample]) -> StepCost:
    size = _SIZES.get(setup.model)
    kv_tokens = None
    if size is not None:
        room = _USABLE * _GPU_MEMORY * setup.tensor_parallel - size.weights
        kv_tokens = int(room // size.kv_per_token) if room > 0 else None
    identity = Identity(
        Kind.PUBLISHED,
        f"{setup.tensor_parallel} x {setup.hardware}",
        setup.model,
        this_engine(),
        f"{setup.model} on {setup.tensor_parallel} x {setup.hardware}, Splitwise's published timings (MIT)",
    )
    cost = fit_cost(identity, samples, kv_tokens=kv_tokens)
    quality = replace(cost.qualities[0], held_out="a fifth of the published batches")
    mixed = "steps that mix prefill and decode, and chunks of prompts, are predicted, not measured"
    memory = "the KV cache is what 90 % of 80 GB a GPU leave beside the weights in bf16"
    return replace(cost, qualities=(quality,), notes=(mixed, memory))
