"""The least that a step can take: its matrix products alone, by the same kernels and weights, at the same sizes.

What a run took is never less than the sum of this over its steps; the quotient of the two says how close the engine is
to what its own products allow. Everything else of the decoder's program is left out, and only the products are timed.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from evenflow.core.errors import ConfigError
from evenflow.engine.config import Dtype, EngineConfig, Quantize
from evenflow.executors.torch.kv_memory import KVMemory
from evenflow.executors.torch.native_llama import NativeLlama
from evenflow.executors.torch.program import CallByCall
from evenflow.kernels.abi import KernelTable
from evenflow.kernels.native import load_kernels
from evenflow.kernels.native_operators import NativeOperators
from evenflow.models.loading import DTYPES, load_model

PRODUCTS = ("int8_gemm", "bf16_gemm")
_WARM_UP = 3


class ProductFloor:
    """Raises ConfigError where the decoder is no program of kernels."""

    def __init__(self, config: EngineConfig) -> None:
        table = load_kernels().table
        if table is None or (config.dtype is Dtype.FP32 and config.quantize is Quantize.NONE):
            raise ConfigError("only products of the native kernels are timed; use dtype bf16 or quantize int8")
        self._products = _ProductsOnly(table)
        # The program and the operators read functions off the table by name, and nothing else.
        stand_in = cast(KernelTable, self._products)
        operators = NativeOperators(stand_in)
        int8 = operators if config.quantize is Quantize.INT8 else None
        model = load_model(Path(config.model), "bf16", int8=int8, panels=operators)
        memory = KVMemory(model.config, num_blocks=1, block_size=config.block_size, dtype=DTYPES["bf16"])
        self._llama = _Llama(model, memory, stand_in, max_num_batched_tokens=config.max_num_batched_tokens)
        most = config.max_num_batched_tokens
        for _ in range(_WARM_UP):
            self._llama.multiply(most, min(most, config.max_num_seqs))

    def seconds(self, steps: Sequence[tuple[int, int]]) -> float:
        """(tokens, rows that sampled) of each step, none larger than the settings allow."""
        self._products.seconds = 0.0
        for tokens, sampled in steps:
            self._llama.multiply(tokens, sampled)
        return self._products.seconds


class _Llama(NativeLlama):
    program_class = CallByCall

    def multiply(self, num_tokens: int, num_sampled: int) -> None:
        self._program.run(num_tokens)
        if num_sampled:
            self.logits(self._buffers.hidden[:num_sampled])


class _ProductsOnly:
    """A kernel table whose products are timed, and whose other kernels do nothing."""

    def __init__(self, table: KernelTable) -> None:
        self.seconds = 0.0
        for name, *_ in table._fields_:
            kernel = getattr(table, name)
            setattr(self, name, self._timed(kernel) if name in PRODUCTS else _nothing)

    def _timed(self, kernel: Callable[[Any], None]) -> Callable[[Any], None]:
        def call(arguments: Any) -> None:  # a ctypes reference, which has no better type
            began = time.perf_counter()
            kernel(arguments)
            self.seconds += time.perf_counter() - began

        return call


def _nothing(arguments: Any) -> None:
    pass
