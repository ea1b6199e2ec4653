"""A weight matrix in the form that multiplies fastest; the model knows only `x -> x W^T + b`.

In bf16 on CPUs with bf16 instructions, oneDNN reads weights much faster when they were re-ordered into its blocked
layout beforehand: 1.3 to 2 times for SmolLM2's matrices at 1 to 128 rows (two cores), so `pack` does that. Other forms
(int8) go beside `DenseLinear` and `PackedLinear` and are chosen in `pack`.
"""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional


class Linear(Protocol):
    @property
    def out_features(self) -> int: ...

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

    def __call__(self, rows: Tensor, /) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._packed, self._bias, "none", [], "")
        return product


def pack(weight: Tensor, bias: Tensor | None = None) -> Linear:
    """`weight` is [out_features, in_features] in the dtype that rows will have; it may be kept or copied."""
    if weight.dtype == torch.bfloat16 and weight.device.type == "cpu" and _onednn_multiplies_bf16():
        return PackedLinear(weight, bias)
    return DenseLinear(weight, bias)


def _onednn_multiplies_bf16() -> bool:
    return torch.backends.mkldnn.is_available() and bool(  # type: ignore[no-untyped-call]
        torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )
