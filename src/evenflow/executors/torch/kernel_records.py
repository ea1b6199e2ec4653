"""Argument records of kernels (kernels/abi.py) from tensors. How many rows there are is set later, for each step.

A left side of a product is `Rows`: int8 with scales, or bf16 with rows and columns to spare for whole tiles.
"""

import torch
from torch import Tensor

from evenflow.kernels.abi import DTYPE_CODES, AddArgs, Bf16GemmArgs, EmbedArgs, Int8GemmArgs, NormArgs, RowsArgs
from evenflow.kernels.operators import BF16_K_STEP, TILE_ROWS, Bf16Weight, Gate, Int8Rows, Int8Weight
from evenflow.models.linear import Bf16Linear, Int8Linear, Linear

PANEL = 16

Rows = Int8Rows | Tensor
ProductArgs = Int8GemmArgs | Bf16GemmArgs


def tiled_rows(num_rows: int, dim: int) -> Tensor:
    """bf16 [num_rows, dim], inside whole tiles of zeros."""
    shape = (-(-num_rows // TILE_ROWS) * TILE_ROWS, -(-dim // BF16_K_STEP) * BF16_K_STEP)
    return torch.zeros(shape, dtype=torch.bfloat16)[:num_rows, :dim]


def rows_from(x: Tensor, dim: int) -> RowsArgs:
    return RowsArgs(input=x.data_ptr(), in_stride=x.stride(0), dim=dim, dtype=DTYPE_CODES[x.dtype])


def rows_to(args: RowsArgs, out: Rows) -> RowsArgs:
    if isinstance(out, Int8Rows):
        args.quantised, args.scales, args.padded_dim = out.values.data_ptr(), out.scales.data_ptr(), out.values.shape[1]
    else:
        args.out, args.out_stride = out.data_ptr(), out.stride(0)
    return args


def norm_of(hidden: Tensor, weight: Tensor, eps: float, out: Rows, *, addend: Tensor | None = None) -> NormArgs:
    args = NormArgs(rows=rows_to(rows_from(hidden, hidden.shape[1]), out), weight=weight.data_ptr(), eps=eps)
    if addend is not None:
        args.addend, args.addend_stride = addend.data_ptr(), addend.stride(0)
        args.addend_dtype = DTYPE_CODES[addend.dtype]
    return args


def embed_of(table: Tensor, scale: float, out: Tensor) -> EmbedArgs:
    assert out.dtype in (table.dtype, torch.float32)  # else it would be rounded twice, and here only once
    return EmbedArgs(
        table=table.data_ptr(),
        out=out.data_ptr(),
        table_stride=table.stride(0),
        out_stride=out.stride(0),
        dim=table.shape[1],
        vocab=table.shape[0],
        scale=scale,
        table_dtype=DTYPE_CODES[table.dtype],
        dtype=DTYPE_CODES[out.dtype],
    )


def sum_of(to: Tensor, addend: Tensor) -> AddArgs:
    assert to.shape == addend.shape
    return AddArgs(
        to=to.data_ptr(),
        addend=addend.data_ptr(),
        to_stride=to.stride(0),
        addend_stride=addend.stride(0),
        dim=to.shape[1],
        dtype=DTYPE_CODES[to.dtype],
        addend_dtype=DTYPE_CODES[addend.dtype],
    )


def product_of(linear: Linear, rows: Rows, out: Tensor, *, gate: Gate | None = None) -> ProductArgs:
    """`linear` must be packed for these kernels, and `rows` be of its kind. With a gate, `linear` gives the gates and
    then what they gate, and `out` (bf16) gets the gated ones, half as many (`can_gate`)."""
    args: ProductArgs
    if isinstance(linear, Int8Linear):
        assert isinstance(rows, Int8Rows)
        args = _int8_product(linear.weight, rows, out)
    else:
        assert isinstance(linear, Bf16Linear)
        assert isinstance(rows, Tensor)
        args = _bf16_product(linear.weight, rows, out)
    if gate is not None:
        assert out.dtype == torch.bfloat16 and can_gate(out.shape[1])
        args.gate = 1 + gate
    assert args.n * (1 if gate is None else 2) == linear.out_features
    return args


def can_gate(num_outputs: int) -> bool:
    """Whether a product can apply its gates itself: they must be whole panels."""
    return num_outputs % PANEL == 0


def _int8_product(weight: Int8Weight, rows: Int8Rows, out: Tensor) -> Int8GemmArgs:
    return Int8GemmArgs(
        a=rows.values.data_ptr(),
        a_scales=rows.scales.data_ptr(),
        packed=weight.packed.data_ptr(),
        w_scales=weight.scales.data_ptr(),
        w_sums=weight.sums.data_ptr(),
        bias=None if weight.bias is None else weight.bias.data_ptr(),
        out=out.data_ptr(),
        out_stride=out.stride(0),
        n=out.shape[1],
        padded_k=rows.values.shape[1],
        dtype=DTYPE_CODES[out.dtype],
    )


def _bf16_product(weight: Bf16Weight, rows: Tensor, out: Tensor) -> Bf16GemmArgs:
    assert rows.stride(0) == weight.packed.shape[1] * 2
    return Bf16GemmArgs(
        a=rows.data_ptr(),
        packed=weight.packed.data_ptr(),
        bias=None if weight.bias is None else weight.bias.data_ptr(),
        out=out.data_ptr(),
        a_stride=rows.stride(0),
        out_stride=out.stride(0),
        n=out.shape[1],
        padded_k=rows.stride(0),
        dtype=DTYPE_CODES[out.dtype],
    )
