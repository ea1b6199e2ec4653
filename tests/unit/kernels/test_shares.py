"""Work that threads share: every piece is done, once, whatever the number of threads and who helps whom."""

import pytest
import torch

from evenflow.kernels.native import INSTRUCTION_SETS, load_kernels
from evenflow.kernels.native_operators import select_operators
from evenflow.kernels.operators import Operators, quantise_weight
from unit.kernels.thread_counts import threads

NATIVE = [kernels for kernels in map(load_kernels, INSTRUCTION_SETS) if kernels.table is not None]
EVERY_NATIVE = pytest.mark.parametrize("native", [select_operators(k) for k in NATIVE], ids=[k.isa for k in NATIVE])
# More threads than pieces, as many, fewer; more than there are cores, so that some find their share done by others.
EVERY_COUNT = pytest.mark.parametrize("count", [2, 3, 7, 40])


def draw(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@EVERY_NATIVE
@EVERY_COUNT
@pytest.mark.parametrize("out_features", [16, 77, 960])
def test_products_are_the_same_on_any_number_of_threads(native: Operators, count: int, out_features: int) -> None:
    rows = native.quantise(draw(37, 576, seed=1))
    packed = native.pack_int8(*quantise_weight(draw(out_features, 576, seed=2)))
    wide = draw(37, 576, seed=1).bfloat16()
    packed_bf16 = native.pack_bf16(draw(out_features, 576, seed=2).bfloat16())
    with threads(1):
        alone = native.multiply_int8(rows, packed, torch.bfloat16), native.multiply_bf16(wide, packed_bf16)
    with threads(count):
        for _ in range(5):
            assert torch.equal(native.multiply_int8(rows, packed, torch.bfloat16), alone[0])
            assert torch.equal(native.multiply_bf16(wide, packed_bf16), alone[1])


@EVERY_NATIVE
@EVERY_COUNT
@pytest.mark.parametrize("num_rows", [29, 130])
def test_rows_are_the_same_on_any_number_of_threads(native: Operators, count: int, num_rows: int) -> None:
    """A norm adds in place: a row that two threads took would be added to twice."""
    weight, addend = draw(576, seed=3), draw(num_rows, 576, seed=4)

    def normed() -> tuple[torch.Tensor, torch.Tensor]:
        hidden = draw(num_rows, 576, seed=5)
        return native.rms_norm(hidden, weight, 1e-5, addend), hidden

    with threads(1):
        alone = normed()
    with threads(count):
        for _ in range(5):
            together = normed()
            assert torch.equal(together[0], alone[0])
            assert torch.equal(together[1], alone[1])
