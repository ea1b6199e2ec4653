"""Native operators against the torch ones, which say what they mean."""

import pytest
import torch

from evenflow.kernels.native import INSTRUCTION_SETS, load_kernels
from evenflow.kernels.native_operators import select_operators
from evenflow.kernels.operators import Gate, Int8Rows, Operators, quantise_weight
from evenflow.kernels.torch_operators import TorchOperators

NATIVE = [kernels for kernels in map(load_kernels, INSTRUCTION_SETS) if kernels.table is not None]
EVERY_NATIVE = pytest.mark.parametrize("native", [select_operators(k) for k in NATIVE], ids=[k.isa for k in NATIVE])
EVERY_SHAPE = pytest.mark.parametrize("shape", [(1, 576), (3, 1536), (70, 100), (5, 7), (257, 64)], ids=str)
EVERY_DTYPE = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
REFERENCE = TorchOperators()


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).mul_(2.0).to(dtype)


def assert_same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    tolerance = 1e-2 if actual.dtype == torch.bfloat16 else 2e-6
    # torch's tanh form of GELU loses a few units of the last place of 1 where the gate closes.
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=2e-5)


def assert_same_int8(actual: Int8Rows, expected: Int8Rows) -> None:
    """Up to the last bit of a sum, which may move a value to the next whole number."""
    n = actual.num_rows
    torch.testing.assert_close(actual.scales, expected.scales, rtol=1e-5, atol=0)
    difference = (actual.values[:n].int() - expected.values[:n].int()).abs()
    assert difference.max() <= 1
    assert difference.float().mean() < 1e-3


@EVERY_NATIVE
@EVERY_SHAPE
@EVERY_DTYPE
@pytest.mark.parametrize("with_addend", [False, True])
def test_rms_norm(native: Operators, shape: tuple[int, int], dtype: torch.dtype, with_addend: bool) -> None:
    weight = draw(shape[1], seed=1)
    addend = draw(*shape, dtype=dtype, seed=2) if with_addend else None
    for method, same in (("rms_norm", assert_same), ("rms_norm_int8", assert_same_int8)):
        hidden, reference_hidden = draw(*shape, dtype=dtype), draw(*shape, dtype=dtype)
        actual = getattr(native, method)(hidden, weight, 1e-5, addend)
        same(actual, getattr(REFERENCE, method)(reference_hidden, weight, 1e-5, addend))
        assert torch.equal(hidden, reference_hidden)


@EVERY_NATIVE
@EVERY_SHAPE
@EVERY_DTYPE
@pytest.mark.parametrize("gate", Gate)
def test_gated_activation(native: Operators, shape: tuple[int, int], dtype: torch.dtype, gate: Gate) -> None:
    gate_up = draw(shape[0], 2 * shape[1], dtype=dtype).mul_(3.0)
    assert_same(native.gated(gate_up, gate), REFERENCE.gated(gate_up, gate))
    assert_same_int8(native.gated_int8(gate_up, gate), REFERENCE.gated_int8(gate_up, gate))


@EVERY_NATIVE
def test_extreme_gates_neither_overflow_nor_vanish(native: Operators) -> None:
    gate_up = torch.tensor([[-1e4, -100.0, 0.0, 100.0, 1e4, 1.0, 1.0, 1.0, 1.0, 1.0]])
    assert_same(native.gated(gate_up, Gate.SILU), REFERENCE.gated(gate_up, Gate.SILU))


@EVERY_NATIVE
@EVERY_SHAPE
@EVERY_DTYPE
def test_quantisation_is_the_same_to_the_bit(native: Operators, shape: tuple[int, int], dtype: torch.dtype) -> None:
    rows = draw(*shape, dtype=dtype)
    rows[0] = 0.0
    actual, expected = native.quantise(rows), REFERENCE.quantise(rows)
    assert torch.equal(actual.values[: shape[0]], expected.values[: shape[0]])
    assert torch.equal(actual.scales, expected.scales)


@EVERY_NATIVE
@EVERY_DTYPE
@pytest.mark.parametrize("rows", [1, 2, 5, 16, 17, 33, 100])
@pytest.mark.parametrize(("out_features", "in_features"), [(960, 576), (576, 1536), (77, 100), (16, 64), (5, 3)])
def test_int8_product_is_exact(
    native: Operators, dtype: torch.dtype, rows: int, out_features: int, in_features: int
) -> None:
    weight, scales = quantise_weight(draw(out_features, in_features, seed=3))
    bias = draw(out_features, seed=4)
    activations = REFERENCE.quantise(draw(rows, in_features, seed=5))
    for with_bias in (None, bias):
        actual = native.multiply_int8(activations, native.pack_int8(weight, scales, with_bias), dtype)
        expected = REFERENCE.multiply_int8(activations, REFERENCE.pack_int8(weight, scales, with_bias), dtype)
        assert torch.equal(actual, expected)


@EVERY_NATIVE
def test_extreme_int8_values_do_not_saturate(native: Operators) -> None:
    weight = torch.full((32, 1024), -127, dtype=torch.int8)
    rows = Int8Rows(torch.full((16, 1024), -128, dtype=torch.int8), torch.ones(2), 2)
    product = native.multiply_int8(rows, native.pack_int8(weight, torch.ones(32)), torch.float32)
    assert torch.equal(product, torch.full((2, 32), 127.0 * 128 * 1024))


@EVERY_NATIVE
def test_a_row_does_not_depend_on_its_company(native: Operators) -> None:
    hidden, weight = draw(100, 576), draw(576, seed=1)
    packed = native.pack_int8(*quantise_weight(draw(960, 576, seed=3)))
    together = native.multiply_int8(native.rms_norm_int8(hidden, weight, 1e-5), packed, torch.bfloat16)
    for row in (0, 37, 99):
        alone = native.multiply_int8(native.rms_norm_int8(hidden[row : row + 1], weight, 1e-5), packed, torch.bfloat16)
        assert torch.equal(alone[0], together[row])
