"""In which numbers a model is kept and computed, and why: what `auto` means on this machine.

    dtype      of weights and activations: bf16 where the processor multiplies it, else fp32
    quantize   int8 products (W8A8) on top of that
    kv_dtype   of the KV cache: as the weights, unless int8 was asked for

int8 costs quality, little but not nothing (docs/benchmarks.md), so neither int8 is taken by default: `quantize auto` is
how a user asks for whatever is fastest. The KV cache has no such wish, because int8 there buys room, not speed.
"""

from dataclasses import dataclass

import torch

from evenflow.kernels.native import Kernels
from evenflow.models.loading import DTYPES

KV_DTYPES = {**DTYPES, "int8": torch.int8}

# Instruction sets whose kernels multiply int8 by instructions made for it: AMX tiles, or VNNI.
_INT8_BY = {"amx": "AMX", "avx512bf16": "AVX-512 VNNI", "avx512": "AVX-512 VNNI"}
_AS_ASKED = "as asked"


@dataclass(frozen=True, slots=True)
class Choice:
    value: str
    why: str

    def __str__(self) -> str:
        return f"{self.value} ({self.why})"


@dataclass(frozen=True, slots=True)
class Formats:
    dtype: Choice
    quantize: Choice
    kv_dtype: Choice


def choose(dtype: str, quantize: str, kv_dtype: str, kernels: Kernels) -> Formats:
    """From what was asked for, `auto` or a name, to names."""
    chosen = Choice(dtype, _AS_ASKED) if dtype != "auto" else _best_dtype()
    return Formats(chosen, _quantize(quantize, kernels), _kv_dtype(kv_dtype, chosen.value))


def _best_dtype() -> Choice:
    if torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported():
        return Choice("bf16", "auto: the processor multiplies bf16")
    return Choice("fp32", "auto: the processor has no bf16 instructions")


def _quantize(asked: str, kernels: Kernels) -> Choice:
    best = _best_quantize(kernels)
    match asked:
        case "auto":
            return Choice(best.value, f"auto: {best.why}")
        case "none" if best.value != "none":
            return Choice("none", f"no loss; auto would take {best.value}: {best.why}")
        case _:
            return Choice(asked, _AS_ASKED)


def _best_quantize(kernels: Kernels) -> Choice:
    if kernels.isa in _INT8_BY:
        return Choice("int8", f"the processor multiplies int8 fastest, by {_INT8_BY[kernels.isa]}")
    if kernels.table is None:
        return Choice("none", "int8 products need the native kernels")
    return Choice("none", f"{kernels.isa} has no instructions for int8 products")


def _kv_dtype(asked: str, dtype: str) -> Choice:
    return Choice(dtype, "auto: that of the weights") if asked == "auto" else Choice(asked, _AS_ASKED)
