"""A model on this machine, ready to be given its KV cache.

Loading comes first and the KV cache second, because how much memory is left for the cache is known only then.
"""

import ctypes
import os
import random
from contextlib import suppress
from pathlib import Path

import torch

from evenflow.executors.torch.attention import PagedAttention, native_can_attend
from evenflow.executors.torch.executor import LayerAttention, Model, TorchExecutor
from evenflow.executors.torch.formats import KV_DTYPES, choose
from evenflow.executors.torch.kv_memory import KVMemory, bytes_per_block
from evenflow.executors.torch.native_llama import NativeLlama
from evenflow.kernels import describe
from evenflow.kernels.native import load_kernels
from evenflow.kernels.native_operators import select_operators
from evenflow.models.llama import LlamaModel
from evenflow.models.loading import load_model


class LoadedTorchModel:
    """Implements `engine.build.LoadedModel`."""

    def __init__(
        self,
        model: LlamaModel,
        kv_dtype: str,
        seed: int | None,
        description: tuple[tuple[str, str], ...],
    ) -> None:
        self._model = model
        self.kv_dtype = kv_dtype
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

    @property
    def weight_bytes(self) -> int:
        return self._model.weight_bytes

    def bytes_per_block(self, block_size: int) -> int:
        return bytes_per_block(self._model.config, block_size, KV_DTYPES[self.kv_dtype])

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
        memory = KVMemory(
            self._model.config, num_blocks=num_blocks, block_size=block_size, dtype=KV_DTYPES[self.kv_dtype]
        )
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
    path: str,
    *,
    dtype: str = "auto",
    quantize: str = "none",
    kv_dtype: str = "auto",
    threads: int | None = None,
    seed: int | None = None,
) -> LoadedTorchModel:
    """`path` is a local folder or .gguf file; `dtype` is auto, bf16 or fp32; `quantize` is auto, none or int8;
    `kv_dtype` is auto, bf16, fp32 or int8.

    Raises `ModelError`.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    elif "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(len(os.sched_getaffinity(0)))
    num_threads = torch.get_num_threads()
    kernels = load_kernels()
    formats = choose(dtype, quantize, kv_dtype, kernels)
    operators = select_operators(kernels)
    model = load_model(
        Path(path),
        formats.dtype.value,
        int8=operators if formats.quantize.value == "int8" else None,
        panels=operators if kernels.table is not None else None,
    )
    _return_freed_memory()
    description = (
        ("executor", f"torch {torch.__version__} on CPU, {num_threads} threads"),
        ("model", f"{model.config.architecture} from {path}"),
        ("dtype", str(formats.dtype)),
        ("quantize", str(formats.quantize)),
        ("kv_dtype", str(formats.kv_dtype)),
        ("kernels", describe()),
    )
    return LoadedTorchModel(model, formats.kv_dtype.value, seed, description)


def _return_freed_memory() -> None:
    """What loading freed lies in the allocator, a few hundred megabytes; glibc returns it when asked."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
