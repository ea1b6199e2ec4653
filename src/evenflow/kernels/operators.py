"""The operations of a decoder layer besides attention: norms, gated activations, int8 quantisation and products.

    Rows      a batch of activations [T, n], float32 or bfloat16
    Int8Rows  the same as int8, with one scale per row: W8A8's left side

Everything works row by row with fixed reduction orders, and sums of int8 products are exact, so with the native body a
row's bits depend on that row alone.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import torch
from torch import Tensor

K_STEP = 64
BF16_K_STEP = 32
TILE_ROWS = 16

# Quantising goes through a matrix several times: 64 rows of 2,000 float32 stay in a core's own cache meanwhile.
_ROWS_AT_ONCE = 64


class Gate(IntEnum):
    SILU = 0
    GELU_TANH = 1


@dataclass(frozen=True, slots=True, eq=False)
class Int8Rows:
    """`values[i] * scales[i]` is row i. `values` is [T rounded up to 16, n rounded up to 64]: zero beyond n, whatever
    beyond T."""

    values: Tensor
    scales: Tensor
    num_rows: int

    @classmethod
    def empty(cls, num_rows: int, dim: int) -> "Int8Rows":
        shape = (_round_up(num_rows, TILE_ROWS), _round_up(dim, K_STEP))
        return cls(torch.empty(shape, dtype=torch.int8), torch.empty(num_rows), num_rows)


@dataclass(frozen=True, slots=True, eq=False)
class Int8Weight:
    """[out_features, in_features], one scale per output, in whatever arrangement its body multiplies fastest."""

    packed: Tensor
    scales: Tensor
    sums: Tensor
    bias: Tensor | None
    out_features: int
    in_features: int


@dataclass(frozen=True, slots=True, eq=False)
class Bf16Weight:
    """[out_features, in_features], in whatever arrangement its body multiplies fastest."""

    packed: Tensor
    bias: Tensor | None
    out_features: int
    in_features: int


class Operators(Protocol):
    """Where a norm has an addend, `hidden` is overwritten with hidden + addend first."""

    def rms_norm(self, hidden: Tensor, weight: Tensor, eps: float, addend: Tensor | None = None) -> Tensor: ...

    def rms_norm_int8(self, hidden: Tensor, weight: Tensor, eps: float, addend: Tensor | None = None) -> Int8Rows: ...

    def gated(self, gate_up: Tensor, gate: Gate) -> Tensor:
        """activation(gate) * up of rows that hold the two side by side."""
        ...

    def gated_int8(self, gate_up: Tensor, gate: Gate) -> Int8Rows: ...

    def quantise(self, rows: Tensor) -> Int8Rows: ...

    def pack_int8(self, weight: Tensor, scales: Tensor, bias: Tensor | None = None) -> Int8Weight:
        """int8 [out, in] and float32 [out]."""
        ...

    def multiply_int8(self, rows: Int8Rows, weight: Int8Weight, dtype: torch.dtype) -> Tensor:
        """[T, out_features], scaled back, of float32 or bfloat16."""
        ...

    def pack_bf16(self, weight: Tensor, bias: Tensor | None = None) -> Bf16Weight:
        """bfloat16 [out, in]."""
        ...

    def multiply_bf16(self, rows: Tensor, weight: Bf16Weight) -> Tensor:
        """bfloat16 [T, in_features] to bfloat16 [T, out_features], summed in float32."""
        ...


def quantise_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """int8 values and one scale per output of [out, in], symmetric: scale = largest magnitude / 127."""
    values, scales = torch.empty(weight.shape, dtype=torch.int8), torch.empty(len(weight))
    for start in range(0, len(weight), _ROWS_AT_ONCE):
        rows = weight[start : start + _ROWS_AT_ONCE].float()
        scale = rows.abs().amax(dim=1).div_(127.0)
        inverse = torch.where(scale > 0, 1.0 / scale, 0.0)
        scales[start : start + _ROWS_AT_ONCE] = scale
        values[start : start + _ROWS_AT_ONCE] = (rows * inverse.unsqueeze(1)).round_()
    return values, scales


def _round_up(n: int, step: int) -> int:
    return -(-n // step) * step
