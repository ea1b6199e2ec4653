"""The bf16 product of every instruction set against the exact one, and against itself in other company."""

import pytest
import torch
from torch import Tensor

from evenflow.kernels.native import INSTRUCTION_SETS, load_kernels
from evenflow.kernels.native_operators import select_operators
from evenflow.kernels.operators import Operators

NATIVE = [kernels for kernels in map(load_kernels, INSTRUCTION_SETS) if kernels.table is not None]
EVERY_NATIVE = pytest.mark.parametrize("native", [select_operators(k) for k in NATIVE], ids=[k.isa for k in NATIVE])
EVERY_SHAPE = pytest.mark.parametrize(
    ("out_features", "in_features"), [(960, 576), (576, 1536), (77, 100), (49, 31), (16, 32), (5, 3), (1, 1)]
)
# Half the distance between neighbours in bf16, and what one fp32 addition may lose.
BF16_ROUNDING = 2.0**-8
FP32_ROUNDING = 2.0**-23


def draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def assert_product(actual: Tensor, rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
    """Within one rounding to bf16 of a sum of which each addition was rounded to fp32."""
    exact = rows.double() @ weight.double().T + (0.0 if bias is None else bias.double())
    magnitude = rows.double().abs() @ weight.double().abs().T + (0.0 if bias is None else bias.double().abs())
    allowed = exact.abs() * BF16_ROUNDING + magnitude * (FP32_ROUNDING * (rows.shape[1] + 1))
    assert actual.dtype == torch.bfloat16
    assert ((actual.double() - exact).abs() <= allowed).all()


@EVERY_NATIVE
@EVERY_SHAPE
@pytest.mark.parametrize("num_rows", [1, 2, 5, 12, 16, 17, 33, 100])
def test_a_product_is_exact_but_for_rounding(
    native: Operators, num_rows: int, out_features: int, in_features: int
) -> None:
    rows, weight = draw(num_rows, in_features, seed=1), draw(out_features, in_features, seed=2)
    bias = draw(out_features, seed=3)
    assert_product(native.multiply_bf16(rows, native.pack_bf16(weight)), rows, weight)
    assert_product(native.multiply_bf16(rows, native.pack_bf16(weight, bias)), rows, weight, bias)


@EVERY_NATIVE
def test_sums_are_kept_in_fp32(native: Operators) -> None:
    """256 + 1 is 256 in bf16, so a sum kept in bf16 would never get beyond the first product."""
    rows, weight = torch.ones(3, 257, dtype=torch.bfloat16), torch.ones(20, 257, dtype=torch.bfloat16)
    rows[:, 0] = 256.0
    assert torch.equal(native.multiply_bf16(rows, native.pack_bf16(weight)), torch.full_like(rows[:, :20], 512.0))


@EVERY_NATIVE
@EVERY_SHAPE
def test_a_row_does_not_depend_on_its_company(native: Operators, out_features: int, in_features: int) -> None:
    rows, packed = draw(64, in_features, seed=4), native.pack_bf16(draw(out_features, in_features, seed=5))
    together = native.multiply_bf16(rows, packed)
    for row in (0, 15, 16, 37, 63):
        assert torch.equal(native.multiply_bf16(rows[row : row + 1], packed)[0], together[row])
    for begin, end in ((1, 3), (5, 18), (7, 40)):
        assert torch.equal(native.multiply_bf16(rows[begin:end], packed), together[begin:end])


@EVERY_NATIVE
def test_a_row_that_is_not_finite_stays_alone_with_it(native: Operators) -> None:
    rows, packed = draw(20, 100, seed=6), native.pack_bf16(draw(48, 100, seed=7))
    clean = native.multiply_bf16(rows, packed)
    rows[3], rows[17, 99] = torch.nan, torch.inf
    dirty = native.multiply_bf16(rows, packed)
    others = [row for row in range(20) if row not in (3, 17)]
    assert torch.equal(dirty[others], clean[others])
    assert dirty[3].isnan().all()
    assert not dirty[17].isfinite().any()
