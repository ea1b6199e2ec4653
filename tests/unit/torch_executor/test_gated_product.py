"""A product that applies its gates itself, against the product and the gates one after the other: the same bits."""

from ctypes import byref

import pytest
import torch

from evenflow.executors.torch.kernel_records import product_of, rows_from, rows_to, tiled_rows
from evenflow.kernels.abi import GatedArgs
from evenflow.kernels.native import Kernels
from evenflow.kernels.native_operators import select_operators
from evenflow.kernels.operators import Gate, Int8Rows
from evenflow.models.linear import Bf16Linear, Int8Linear
from unit.kernels.attention_world import runnable_kernels

NATIVE = [kernels for kernels in runnable_kernels() if kernels.table is not None]
INNER, HIDDEN = 48, 80


@pytest.mark.parametrize("kernels", NATIVE, ids=lambda kernels: kernels.isa)
@pytest.mark.parametrize("biased", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("gate", Gate)
@pytest.mark.parametrize("form", ["int8", "bf16"])
def test_gates_within_a_product_are_those_after_it(form: str, gate: Gate, biased: bool, kernels: Kernels) -> None:
    assert kernels.table is not None
    operators = select_operators(kernels)
    random = torch.Generator().manual_seed(7)
    weight = torch.randn(2 * INNER, HIDDEN, generator=random)
    bias = torch.randn(2 * INNER, generator=random) if biased else None
    for num_rows in (1, 4, 17, 50):
        rows = torch.randn(num_rows, HIDDEN, generator=random).bfloat16()
        if form == "int8":
            linear: Int8Linear | Bf16Linear = Int8Linear(weight, bias, operators)
            left: Int8Rows | torch.Tensor = operators.quantise(rows)
        else:
            linear = Bf16Linear(weight.bfloat16(), bias, operators)
            left = tiled_rows(num_rows, HIDDEN)
            left.copy_(rows)
        multiply = kernels.table.int8_gemm if form == "int8" else kernels.table.bf16_gemm

        both = torch.empty(num_rows, 2 * INNER, dtype=torch.bfloat16)
        apart = torch.empty(num_rows, INNER, dtype=torch.bfloat16)
        args = product_of(linear, left, both)
        args.m = num_rows
        multiply(byref(args))
        after = rows_to(rows_from(both, INNER), apart)
        after.num_rows = num_rows
        kernels.table.gated(byref(GatedArgs(rows=after, activation=gate)))

        at_once = torch.full((num_rows + 1, INNER), 3.0, dtype=torch.bfloat16)
        args = product_of(linear, left, at_once[:num_rows], gate=gate)
        args.m = num_rows
        multiply(byref(args))
        assert torch.equal(at_once[:num_rows].view(torch.int16), apart.view(torch.int16))
        assert bool((at_once[num_rows] == 3.0).all()), "rows that do not exist are not written"
        assert apart.isfinite().all()
        assert apart.std() > 0.0
