"""The operators in plain torch: the fallback, and what the native ones are tested against."""

import torch
from torch import Tensor
from torch.nn import functional

from evenflow.kernels.operators import Bf16Weight, Gate, Int8Rows, Int8Weight


class TorchOperators:
    __slots__ = ()

    def rms_norm(self, hidden: Tensor, weight: Tensor, eps: float, addend: Tensor | None = None) -> Tensor:
        return _normed(hidden, weight, eps, addend).to(hidden.dtype)

    def rms_norm_int8(self, hidden: Tensor, weight: Tensor, eps: float, addend: Tensor | None = None) -> Int8Rows:
        return self.quantise(_normed(hidden, weight, eps, addend))

    def gated(self, gate_up: Tensor, gate: Gate) -> Tensor:
        return _gated(gate_up, gate).to(gate_up.dtype)

    def gated_int8(self, gate_up: Tensor, gate: Gate) -> Int8Rows:
        return self.quantise(_gated(gate_up, gate))

    def quantise(self, rows: Tensor) -> Int8Rows:
        num_rows, dim = rows.shape
        rows = rows.float()
        scales = rows.abs().amax(dim=1) / 127.0
        inverse = torch.where(scales > 0, 1.0 / scales, 0.0)
        out = Int8Rows.empty(num_rows, dim)
        out.values[:num_rows, dim:] = 0
        out.values[:num_rows, :dim] = (rows * inverse.unsqueeze(1)).round()
        out.scales.copy_(scales)
        return out

    def pack_int8(self, weight: Tensor, scales: Tensor, bias: Tensor | None = None) -> Int8Weight:
        out_features, in_features = weight.shape
        return Int8Weight(weight.contiguous(), scales.float(), torch.empty(0), bias, out_features, in_features)

    def multiply_int8(self, rows: Int8Rows, weight: Int8Weight, dtype: torch.dtype) -> Tensor:
        values = rows.values[: rows.num_rows, : weight.in_features]
        product = torch._int_mm(values, weight.packed.t()).float() * weight.scales * rows.scales.unsqueeze(1)
        return (product if weight.bias is None else product + weight.bias).to(dtype)

    def pack_bf16(self, weight: Tensor, bias: Tensor | None = None) -> Bf16Weight:
        return Bf16Weight(weight.contiguous(), bias, *weight.shape)

    def multiply_bf16(self, rows: Tensor, weight: Bf16Weight) -> Tensor:
        return functional.linear(rows, weight.packed, weight.bias)


def _normed(hidden: Tensor, weight: Tensor, eps: float, addend: Tensor | None) -> Tensor:
    if addend is not None:
        hidden.add_(addend)
    return functional.rms_norm(hidden.float(), hidden.shape[-1:], None, eps).mul_(weight)


def _gated(gate_up: Tensor, gate: Gate) -> Tensor:
    left, up = gate_up.float().chunk(2, dim=-1)
    match gate:
        case Gate.SILU:
            return functional.silu(left) * up
        case Gate.GELU_TANH:
            return functional.gelu(left, approximate="tanh") * up
