"""The operators by the C++ kernels: check shapes, fill in the argument records, call."""

from ctypes import byref

import torch
from torch import Tensor
from torch.nn.functional import pad

from evenflow.kernels.abi import DTYPE_CODES, Bf16GemmArgs, GatedArgs, Int8GemmArgs, KernelTable, NormArgs, RowsArgs
from evenflow.kernels.native import Kernels
from evenflow.kernels.operators import BF16_K_STEP, K_STEP, TILE_ROWS, Bf16Weight, Gate, Int8Rows, Int8Weight, Operators
from evenflow.kernels.torch_operators import TorchOperators


def select_operators(kernels: Kernels) -> Operators:
    return TorchOperators() if kernels.table is None else NativeOperators(kernels.table)


class NativeOperators:
    __slots__ = ("_table",)

    def __init__(self, table: KernelTable) -> None:
        self._table = table

    def rms_norm(self, hidden: Tensor, weight: Tensor, eps: float, addend: Tensor | None = None) -> Tensor:
        out = torch.empty_like(hidden)
        self._norm(_rows(hidden, hidden.shape[1]), hidden, weight, eps, addend, out)
        return out

    def rms_norm_int8(self, hidden: Tensor, weight: Tensor, eps: float, addend: Tensor | None = None) -> Int8Rows:
        out = Int8Rows.empty(*hidden.shape)
        self._norm(_rows(hidden, hidden.shape[1]), hidden, weight, eps, addend, out)
        return out

    def _norm(
        self, rows: RowsArgs, hidden: Tensor, weight: Tensor, eps: float, addend: Tensor | None, out: Tensor | Int8Rows
    ) -> None:
        assert weight.dtype == torch.float32 and weight.is_contiguous() and len(weight) == hidden.shape[1]
        args = NormArgs(rows=_to(rows, out), weight=weight.data_ptr(), eps=eps)
        if addend is not None:
            assert addend.dtype == hidden.dtype and addend.shape == hidden.shape and addend.stride(1) == 1
            args.addend, args.addend_stride = addend.data_ptr(), addend.stride(0)
        self._table.rms_norm(byref(args))

    def gated(self, gate_up: Tensor, gate: Gate) -> Tensor:
        dim = gate_up.shape[1] // 2
        out = gate_up.new_empty(gate_up.shape[0], dim)
        self._table.gated(byref(GatedArgs(rows=_to(_rows(gate_up, dim), out), activation=gate)))
        return out

    def gated_int8(self, gate_up: Tensor, gate: Gate) -> Int8Rows:
        dim = gate_up.shape[1] // 2
        out = Int8Rows.empty(gate_up.shape[0], dim)
        self._table.gated(byref(GatedArgs(rows=_to(_rows(gate_up, dim), out), activation=gate)))
        return out

    def quantise(self, rows: Tensor) -> Int8Rows:
        out = Int8Rows.empty(*rows.shape)
        self._table.quantise(byref(_to(_rows(rows, rows.shape[1]), out)))
        return out

    def pack_int8(self, weight: Tensor, scales: Tensor, bias: Tensor | None = None) -> Int8Weight:
        out_features, in_features = weight.shape
        more_out, more_in = -out_features % TILE_ROWS, -in_features % K_STEP
        padded = pad(weight, (0, more_in, 0, more_out))
        panels = padded.view(len(padded) // TILE_ROWS, TILE_ROWS, -1, 4).permute(0, 2, 1, 3).contiguous()
        sums = padded.sum(dim=1, dtype=torch.int32)
        bias = None if bias is None else bias.float().contiguous()
        return Int8Weight(panels, pad(scales.float(), (0, more_out)), sums, bias, out_features, in_features)

    def multiply_int8(self, rows: Int8Rows, weight: Int8Weight, dtype: torch.dtype) -> Tensor:
        padded_k = rows.values.shape[1]
        assert padded_k == weight.packed.shape[1] * 4 and len(rows.values) % TILE_ROWS == 0
        out = torch.empty((rows.num_rows, weight.out_features), dtype=dtype)
        args = Int8GemmArgs(
            a=rows.values.data_ptr(),
            a_scales=rows.scales.data_ptr(),
            packed=weight.packed.data_ptr(),
            w_scales=weight.scales.data_ptr(),
            w_sums=weight.sums.data_ptr(),
            bias=None if weight.bias is None else weight.bias.data_ptr(),
            out=out.data_ptr(),
            out_stride=weight.out_features,
            m=rows.num_rows,
            n=weight.out_features,
            padded_k=padded_k,
            dtype=DTYPE_CODES[dtype],
        )
        self._table.int8_gemm(byref(args))
        return out

    def pack_bf16(self, weight: Tensor, bias: Tensor | None = None) -> Bf16Weight:
        out_features, in_features = weight.shape
        padded = pad(weight, (0, -in_features % BF16_K_STEP, 0, -out_features % TILE_ROWS))
        panels = padded.view(len(padded) // TILE_ROWS, TILE_ROWS, -1, 2).permute(0, 2, 1, 3).contiguous()
        return Bf16Weight(panels, None if bias is None else bias.float().contiguous(), out_features, in_features)

    def multiply_bf16(self, rows: Tensor, weight: Bf16Weight) -> Tensor:
        num_rows, in_features = rows.shape
        padded_k = weight.packed.shape[1] * 2
        # Tiles read whole groups of rows and of k.
        padded = pad(rows, (0, padded_k - in_features, 0, -num_rows % TILE_ROWS)).contiguous()
        out = rows.new_empty(num_rows, weight.out_features)
        args = Bf16GemmArgs(
            a=padded.data_ptr(),
            packed=weight.packed.data_ptr(),
            bias=None if weight.bias is None else weight.bias.data_ptr(),
            out=out.data_ptr(),
            a_stride=padded_k,
            out_stride=weight.out_features,
            m=num_rows,
            n=weight.out_features,
            padded_k=padded_k,
            dtype=DTYPE_CODES[out.dtype],
        )
        self._table.bf16_gemm(byref(args))
        return out


def _rows(x: Tensor, dim: int) -> RowsArgs:
    assert x.dim() == 2 and x.stride(1) == 1
    return RowsArgs(input=x.data_ptr(), in_stride=x.stride(0), num_rows=len(x), dim=dim, dtype=DTYPE_CODES[x.dtype])


def _to(args: RowsArgs, out: Tensor | Int8Rows) -> RowsArgs:
    if isinstance(out, Int8Rows):
        args.quantised, args.scales, args.padded_dim = out.values.data_ptr(), out.scales.data_ptr(), out.values.shape[1]
    else:
        args.out, args.out_stride = out.data_ptr(), out.stride(0)
    return args
