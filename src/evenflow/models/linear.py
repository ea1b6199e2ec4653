"""A weight matrix in the form that multiplies fastest; the model knows only `x -> x W^T + b`.

    DenseLinear    as it is                          fp32, or where oneDNN has no bf16
    PackedLinear   in oneDNN's blocked layout        bf16
    Bf16Linear     in our own kernels' panels       bf16, for a program of native kernels
    Int8Linear     W8A8: int8 weights with a scale per output, activations made int8 with a scale per row

In bf16 on CPUs with bf16 instructions, oneDNN reads weights much faster when they were re-ordered into its blocked
layout beforehand: 1.3 to 2 times for SmolLM2's matrices at 1 to 128 rows (two cores), so `pack` does that.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from evenflow.kernels.operators import Bf16Weight, Int8Weight, Operators, quantise_weight


class Linear(Protocol):
    @property
    def out_features(self) -> int: ...

    @property
    def tensors(self) -> Sequence[Tensor | None]:
        """What it keeps in memory."""
        ...

    def __call__(self, rows: Tensor, /) -> Tensor:
        """[rows, in_features] -> [rows, out_features], of the dtype of `rows`."""
        ...


class DenseLinear:
    """The weight as it is."""

    __slots__ = ("_bias", "_weight")

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = weight
        self._bias = bias

    @property
    def out_features(self) -> int:
        return self._weight.shape[0]

    @property
    def tensors(self) -> Sequence[Tensor | None]:
        return self._weight, self._bias

    def __call__(self, rows: Tensor, /) -> Tensor:
        return functional.linear(rows, self._weight, self._bias)


class PackedLinear:
    """The weight in oneDNN's own layout."""

    __slots__ = ("_bias", "_out_features", "_packed")

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._out_features = weight.shape[0]
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight)
        self._bias = bias

    @property
    def out_features(self) -> int:
        return self._out_features

    @property
    def tensors(self) -> Sequence[Tensor | None]:
        return self._packed, self._bias

    def __call__(self, rows: Tensor, /) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._packed, self._bias, "none", [], "")
        return product


class Bf16Linear:
    __slots__ = ("_operators", "weight")

    def __init__(self, weight: Tensor, bias: Tensor | None, operators: Operators) -> None:
        self.weight: Bf16Weight = operators.pack_bf16(weight, bias)
        self._operators = operators

    @property
    def out_features(self) -> int:
        return self.weight.out_features

    @property
    def tensors(self) -> Sequence[Tensor | None]:
        return self.weight.packed, self.weight.bias

    def __call__(self, rows: Tensor, /) -> Tensor:
        return self._operators.multiply_bf16(rows, self.weight)


class Int8Linear:
    """Products of int8 rows and weights are exact integers, so a row's result does not depend on its batch."""

    __slots__ = ("_operators", "weight")

    def __init__(self, weight: Tensor, bias: Tensor | None, operators: Operators) -> None:
        values, scales = quantise_weight(weight)
        self.weight: Int8Weight = operators.pack_int8(values, scales, bias)
        self._operators = operators

    @property
    def out_features(self) -> int:
        return self.weight.out_features

    @property
    def tensors(self) -> Sequence[Tensor | None]:
        return self.weight.packed, self.weight.scales, self.weight.sums, self.weight.bias

    def __call__(self, rows: Tensor, /) -> Tensor:
        return self._operators.multiply_int8(self._operators.quantise(rows), self.weight, rows.dtype)


def pack(weight: Tensor, bias: Tensor | None = None) -> Linear:
    """`weight` is [out_features, in_features] in the dtype that rows will have; it may be kept or copied."""
    if weight.dtype == torch.bfloat16 and weight.device.type == "cpu" and _onednn_multiplies_bf16():
        return PackedLinear(weight, bias)
    return DenseLinear(weight, bias)


def _onednn_multiplies_bf16() -> bool:
    return torch.backends.mkldnn.is_available() and bool(  # type: ignore[no-untyped-call]
        torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )
