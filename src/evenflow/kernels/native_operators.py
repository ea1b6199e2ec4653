"""The operators by the C++ kernels: check shapes, fill in the argument records, call."""

from ctypes import byref

import torch
from torch import Tensor
from torch.nn.functional import pad

from evenflow.kernels.abi import DTYPE_CODES, Bf16GemmArgs, GatedArgs, Int8GemmArgs, KernelTable, NormArgs, RowsArgs
from evenflow.kernels.native import Kernels
from evenflow.kernels.operators import BF16_K_STEP, K_STEP, TILE_ROWS, Bf16Weight, Gate, Int8Rows, Int8Weight, Operators
from evenflow.kernels.torch_operators import TorchOperators

_ROWS_AT_ONCE = 64


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
            args.addend_dtype = DTYPE_CODES[addend.dtype]
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
        padded = _padded(weight, K_STEP)
        scales = pad(scales.float(), (0, len(padded) - out_features))
        bias = None if bias is None else bias.float().contiguous()
        return Int8Weight(_panels(padded), scales, _row_sums(padded), bias, out_features, in_features)

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
        panels = _panels(_padded(weight, BF16_K_STEP))
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


def _padded(weight: Tensor, k_step: int) -> Tensor:
    """Whole tiles, zero beyond the weight."""
    more_out, more_in = -weight.shape[0] % TILE_ROWS, -weight.shape[1] % k_step
    return pad(weight, (0, more_in, 0, more_out)) if more_out or more_in else weight.contiguous()


def _panels(weight: Tensor) -> Tensor:
    """[n, k] to [n / 16, k / u, 16, u], where u elements are the 4 bytes that a dot product takes at once: moving units
    is ten times as fast as moving elements."""
    num_panels, per_unit = len(weight) // TILE_ROWS, 4 // weight.element_size()
    units = weight.view(torch.int32).view(num_panels, TILE_ROWS, -1).transpose(1, 2).contiguous()
    return units.view(weight.dtype).view(num_panels, -1, TILE_ROWS, per_unit)


def _row_sums(weight: Tensor) -> Tensor:
    """In float64, which holds them exactly and is summed eight times as fast as int8 is."""
    parts = [rows.double().sum(dim=1) for rows in torch.split(weight, _ROWS_AT_ONCE)]
    return torch.cat(parts).to(torch.int32)


def _rows(x: Tensor, dim: int) -> RowsArgs:
    assert x.dim() == 2 and x.stride(1) == 1
    return RowsArgs(input=x.data_ptr(), in_stride=x.stride(0), num_rows=len(x), dim=dim, dtype=DTYPE_CODES[x.dtype])


def _to(args: RowsArgs, out: Tensor | Int8Rows) -> RowsArgs:
    if isinstance(out, Int8Rows):
        args.quantised, args.scales, args.padded_dim = out.values.data_ptr(), out.scales.data_ptr(), out.values.shape[1]
    else:
        args.out, args.out_stride = out.data_ptr(), out.stride(0)
    return args
