"""A model on this machine, ready to be given its KV cache.

Loading comes first and the KV cache second, because how much memory is left for the cache is known only then.
"""

import os
import random
from pathlib import Path

import torch

from evenflow.executors.torch.attention import PagedAttention, native_can_attend
from evenflow.executors.torch.executor import LayerAttention, Model, TorchExecutor
from evenflow.executors.torch.kv_memory import KVMemory, bytes_per_block
from evenflow.executors.torch.native_llama import NativeLlama
from evenflow.kernels import describe
from evenflow.kernels.native import load_kernels
from evenflow.kernels.native_operators import select_operators
from evenflow.models.llama import LlamaModel
from evenflow.models.loading import DTYPES, load_model


class LoadedTorchModel:
    """Implements `engine.build.LoadedModel`."""

    def __init__(
        self,
        model: LlamaModel,
        dtype: str,
        seed: int | None,
        description: tuple[tuple[str, str], ...],
    ) -> None:
        self._model = model
        self._dtype = DTYPES[dtype]
        self._seed = seed
        self._description = description

    @property
    def max_position_embeddings(self) -> int:
        return self._model.config.max_position_embeddings

    @property
    def vocab_size(self) -> int:
        return self._model.config.vocab_size

    @property
    def description(self) -> tuple[tuple[str, str], ...]:
        return self._description

    def bytes_per_block(self, block_size: int) -> int:
        return bytes_per_block(self._model.config, block_size, self._dtype)

    def executor(
        self,
        *,
        num_blocks: int,
        block_size: int,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_model_len: int,
        num_host_blocks: int = 0,
        program: type[NativeLlama] = NativeLlama,
    ) -> TorchExecutor:
        """`program` is what runs the decoder where the kernels can: a bench has one that keeps the time."""
        memory = KVMemory(self._model.config, num_blocks=num_blocks, block_size=block_size, dtype=self._dtype)
        model: Model
        attention: LayerAttention
        table = load_kernels().table
        if table is not None and native_can_attend(memory) and NativeLlama.can_run(self._model):
            model = attention = program(self._model, memory, table, max_num_batched_tokens=max_num_batched_tokens)
        else:
            model, attention = self._model, PagedAttention(memory, self._model.config)
        return TorchExecutor(
            model,
            attention,
            memory,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=max_model_len,
            seeds=random.Random(self._seed),
            num_host_blocks=num_host_blocks,
        )


def load(
    path: str, *, dtype: str, quantize: str = "none", threads: int | None = None, seed: int | None = None
) -> LoadedTorchModel:
    """`path` is a local folder or .gguf file; `dtype` is auto, bf16 or fp32; `quantize` is none or int8.

    Raises `ModelError`.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    elif "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(len(os.sched_getaffinity(0)))
    num_threads = torch.get_num_threads()
    chosen, why = (dtype, "as asked") if dtype != "auto" else _best_dtype()
    kernels = load_kernels()
    operators = select_operators(kernels)
    model = load_model(
        Path(path),
        chosen,
        int8=operators if quantize == "int8" else None,
        panels=operators if kernels.table is not None else None,
    )
    description = (
        ("executor", f"torch {torch.__version__} on CPU, {num_threads} threads"),
        ("model", f"{model.config.architecture} from {path}"),
        ("dtype", f"{chosen} ({why})"),
        ("quantize", quantize),
        ("kernels", describe()),
    )
    return LoadedTorchModel(model, chosen, seed, description)


def _best_dtype() -> tuple[str, str]:
    if torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported():
        return "bf16", "auto: the processor multiplies bf16"
    return "fp32", "auto: the processor has no bf16 instructions"
