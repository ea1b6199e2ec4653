"""The program of native kernels against the same model in torch, and against itself however the work is cut.

The two round at different places (the program keeps q, k, v, gate and up in bf16 between its kernels), and a random
model amplifies that as it amplifies every rounding. So the measure of "the same" is the model's own rounding: how far
the format, bf16 or int8, is from fp32 in the first place.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from evenflow.executors.torch.attention import PagedAttention
from evenflow.executors.torch.executor import LayerAttention, Model
from evenflow.executors.torch.kv_memory import KVMemory
from evenflow.executors.torch.layout import build_layout, token_positions
from evenflow.executors.torch.logits import Logits
from evenflow.executors.torch.native_llama import NativeLlama
from evenflow.executors.torch.vocab_blocks import block_maxima
from evenflow.kernels.native import INSTRUCTION_SETS, Kernels, load_kernels
from evenflow.kernels.native_operators import select_operators
from evenflow.models.llama import LlamaModel
from evenflow.models.loading import load_model
from tiny_models import VOCAB_SIZE, tiny_model

NATIVE = [kernels for kernels in map(load_kernels, INSTRUCTION_SETS) if kernels.table is not None]
# The program is the same on all of them: the best and the plainest are tried each time, the others in the slow tests.
EVERY_NATIVE = pytest.mark.parametrize(
    "kernels",
    [pytest.param(k, id=k.isa, marks=[] if k.isa in {NATIVE[0].isa, "portable"} else pytest.mark.slow) for k in NATIVE],
)
VARIANTS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "llama": ("llama", {}),
    "llama-biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama-odd-sizes": ("llama", {"hidden_size": 72, "head_dim": 20, "intermediate_size": 100}),
    "llama-one-kv-head": ("llama", {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    "mistral-window": ("mistral", {}),
    "qwen2-bias": ("qwen2", {}),
    "qwen3-qk-norm": ("qwen3", {}),
    "gemma3-post-norms": ("gemma3_text", {}),
}
EVERY_VARIANT = pytest.mark.parametrize("variant", VARIANTS)
EVERY_FORMAT = pytest.mark.parametrize("form", ["bf16", "int8"])
INT8_CACHE_VARIANTS = pytest.mark.parametrize("variant", ["llama", "qwen3-qk-norm", "gemma3-post-norms"])

BLOCK_SIZE = 16
NUM_BLOCKS = 24
LARGEST_STEP = 32
TEXTS = {
    name: random.Random(name).choices(range(VOCAB_SIZE), k=length)
    for name, length in (("a", 45), ("b", 31), ("c", 20), ("d", 3))
}

Step = Mapping[str, int]
"""How many of its next tokens each request runs, in this order."""
MIXED: Sequence[Step] = (
    {"a": 13, "b": 7},
    {"a": 1, "b": 23},
    {"c": 1, "b": 1, "a": 30},
    {"d": 2, "a": 1, "c": 18},
    {"c": 1, "d": 1},
)
WHOLE: Sequence[Step] = tuple({name: len(text)} for name, text in TEXTS.items())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Where a variant's weights are."""
    made: dict[str, Path] = {}

    def of(variant: str) -> Path:
        if variant not in made:
            made[variant] = tmp_path_factory.mktemp(variant)
            architecture, changes = VARIANTS[variant]
            tiny_model(architecture, **changes).save_pretrained(made[variant])
        return made[variant]

    return of


def load(path: Path, form: str, kernels: Kernels) -> LlamaModel:
    operators = select_operators(kernels)
    return load_model(path, "bf16", int8=operators if form == "int8" else None, panels=operators)


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """A model with its memory. Blocks come in a shuffled order, and hold what an earlier owner may have left: NaN."""

    model: Model
    attention: LayerAttention
    memory: KVMemory

    @classmethod
    def native(
        cls,
        model: LlamaModel,
        kernels: Kernels,
        largest_step: int = LARGEST_STEP,
        kv_dtype: torch.dtype = torch.bfloat16,
    ) -> "Machine":
        memory = KVMemory(model.config, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, dtype=kv_dtype)
        assert kernels.table is not None
        assert NativeLlama.can_run(model)
        program = NativeLlama(model, memory, kernels.table, max_num_batched_tokens=largest_step)
        return cls(program, program, memory)

    @classmethod
    def plain(cls, model: LlamaModel, kernels: Kernels, dtype: torch.dtype = torch.bfloat16) -> "Machine":
        memory = KVMemory(model.config, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, dtype=dtype)
        return cls(model, PagedAttention(memory, model.config, kernels=kernels), memory)

    def run(self, steps: Sequence[Step]) -> dict[str, Tensor]:
        """The logits of every token that ran."""
        self.memory.pool.fill_(0xFF)
        free = random.Random(5).sample(range(NUM_BLOCKS), NUM_BLOCKS)
        tables = {name: [free.pop() for _ in range(-(-len(text) // BLOCK_SIZE))] for name, text in TEXTS.items()}
        done = dict.fromkeys(TEXTS, 0)
        seen: dict[str, list[Tensor]] = {name: [] for name in TEXTS}
        for step in steps:
            query_start = np.cumsum([0, *step.values()], dtype=np.int32)
            context_len = np.array([done[name] for name in step], dtype=np.int32)
            width = max(len(tables[name]) for name in step)
            padded = np.array([tables[name] + [-1] * (width - len(tables[name])) for name in step], dtype=np.int32)
            layout = build_layout(query_start, context_len, padded, block_size=BLOCK_SIZE)
            self.attention.begin(layout)
            tokens = [token for name, count in step.items() for token in TEXTS[name][done[name] : done[name] + count]]
            positions = torch.from_numpy(token_positions(query_start, context_len).astype(np.int64))
            hidden = self.model.hidden(torch.tensor(tokens), positions, self.attention)
            logits = Logits.of(self.model.logits(hidden)).values.float().clone()
            for (name, count), (begin, end) in zip(step.items(), pairwise(query_start.tolist()), strict=True):
                seen[name].append(logits[begin:end])
                done[name] += count
        return {name: torch.cat(rows) for name, rows in seen.items() if rows}


def all_of(logits: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([logits[name] for name in sorted(logits)])


def assert_same_bits(actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    for name, rows in actual.items():
        assert rows.isfinite().all()
        assert torch.equal(rows, expected[name][: len(rows)]), name


def assert_same_bits_however_cut(machine: Machine) -> None:
    whole = machine.run(WHOLE)
    assert_same_bits(machine.run(MIXED), whole)
    assert_same_bits(machine.run([{"a": 1}] * 45), whole)
    assert_same_bits(machine.run([{"b": 17}, {"b": 1}, {"d": 3, "b": 13}]), whole)


@EVERY_VARIANT
@EVERY_FORMAT
@EVERY_NATIVE
def test_the_program_is_the_model(kernels: Kernels, form: str, variant: str, folder: Callable[[str], Path]) -> None:
    exact = all_of(Machine.plain(load_model(folder(variant), "fp32"), kernels, torch.float32).run(MIXED))
    model = load(folder(variant), form, kernels)
    plain = all_of(Machine.plain(model, kernels).run(MIXED))
    native = all_of(Machine.native(model, kernels).run(MIXED))
    rounding = (plain - exact).abs().mean()
    # A window, a norm or a bias that is missing moves logits by about their own size, ten times as much.
    assert 0.0 < rounding < 0.1 * exact.abs().mean()
    assert (native - exact).abs().mean() < 1.1 * rounding
    assert (native - plain).abs().mean() < rounding


@EVERY_VARIANT
@EVERY_FORMAT
@EVERY_NATIVE
def test_a_request_has_the_same_logits_however_the_work_is_cut(
    kernels: Kernels, form: str, variant: str, folder: Callable[[str], Path]
) -> None:
    assert_same_bits_however_cut(Machine.native(load(folder(variant), form, kernels), kernels))


@INT8_CACHE_VARIANTS
@EVERY_FORMAT
@EVERY_NATIVE
def test_an_int8_cache_gives_the_same_logits_however_the_work_is_cut(
    kernels: Kernels, form: str, variant: str, folder: Callable[[str], Path]
) -> None:
    assert_same_bits_however_cut(Machine.native(load(folder(variant), form, kernels), kernels, kv_dtype=torch.int8))


@INT8_CACHE_VARIANTS
@EVERY_FORMAT
@EVERY_NATIVE
def test_an_int8_cache_adds_no_more_than_its_own_rounding(
    kernels: Kernels, form: str, variant: str, folder: Callable[[str], Path]
) -> None:
    exact = all_of(Machine.plain(load_model(folder(variant), "fp32"), kernels, torch.float32).run(MIXED))
    model = load(folder(variant), form, kernels)
    wide, narrow = (
        all_of(Machine.native(model, kernels, kv_dtype=dtype).run(MIXED)) for dtype in (torch.bfloat16, torch.int8)
    )
    assert not torch.equal(wide, narrow)
    # As above: whatever is missing, a scale for one, moves logits by about their own size.
    assert (narrow - exact).abs().mean() < 0.1 * exact.abs().mean()
    plain = all_of(Machine.plain(model, kernels, torch.int8).run(MIXED))
    assert (narrow - plain).abs().mean() < 1.5 * (narrow - exact).abs().mean()


@EVERY_FORMAT
def test_buffers_grow_for_a_larger_step(form: str, folder: Callable[[str], Path]) -> None:
    kernels = NATIVE[0]
    model = load(folder("gemma3-post-norms"), form, kernels)
    ample, grown = Machine.native(model, kernels, 64), Machine.native(model, kernels, 1)
    assert_same_bits(grown.run(MIXED), ample.run(MIXED))
    assert_same_bits(grown.run(MIXED), ample.run(MIXED))


@EVERY_FORMAT
@EVERY_NATIVE
@pytest.mark.parametrize("vocab_size", [256, 300, 1000])
def test_the_head_knows_the_largest_logit_of_each_block(
    kernels: Kernels, form: str, vocab_size: int, tmp_path: Path
) -> None:
    tiny_model("llama", vocab_size=vocab_size).save_pretrained(tmp_path)
    machine = Machine.native(load(tmp_path, form, kernels), kernels)
    for num_rows in (1, 3, 20):
        hidden = torch.randn(num_rows, machine.model.config.hidden_size, generator=torch.Generator().manual_seed(1))
        logits = Logits.of(machine.model.logits(hidden.to(torch.float32 if form == "int8" else torch.bfloat16)))
        assert logits.maxima is not None
        assert np.array_equal(logits.maxima.numpy(), block_maxima(logits.values.float()))
