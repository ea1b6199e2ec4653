"""The bits of a request's attention are its own: not the batch's, the chunking's, the block size's, or the threads'."""

from collections.abc import Sequence

import pytest
import torch

from evenflow.kernels.native import Kernels
from unit.kernels.attention_world import FALLBACK, AttentionWorld, Shape, random_sequence, runnable_kernels
from unit.kernels.thread_counts import threads

NATIVE = [kernels for kernels in runnable_kernels() if kernels is not FALLBACK]
EVERY_NATIVE = pytest.mark.parametrize("kernels", NATIVE, ids=lambda k: k.isa)
EVERY_DTYPE = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
LENGTH = 1100  # beyond two partitions
SHAPE = Shape(sliding_windows=(700,))


def alone(kernels: Kernels, dtype: torch.dtype, chunks: Sequence[int], block_size: int = 16) -> torch.Tensor:
    sequence = random_sequence(SHAPE, LENGTH, torch.bfloat16, seed=1)
    world = AttentionWorld(SHAPE, kernels, dtype=dtype, block_size=block_size)
    return torch.cat([world.step([sequence], [length])[0] for length in chunks])


@EVERY_NATIVE
@EVERY_DTYPE
def test_decoding_gives_the_bits_of_one_prefill(kernels: Kernels, dtype: torch.dtype) -> None:
    at_once = alone(kernels, dtype, [LENGTH])
    piecewise = alone(kernels, dtype, [7, 500, 33, *[1] * 50, LENGTH - 590 - 30, *[1] * 30])
    assert torch.equal(at_once, piecewise)


@EVERY_NATIVE
@EVERY_DTYPE
def test_company_does_not_change_a_request(kernels: Kernels, dtype: torch.dtype) -> None:
    lonely = alone(kernels, dtype, [LENGTH - 1, 1])
    sequences = [random_sequence(SHAPE, LENGTH, torch.bfloat16, seed) for seed in range(20)]
    world = AttentionWorld(SHAPE, kernels, dtype=dtype, num_blocks=1500)
    world.step(sequences, [0, 0, *[5 * i for i in range(2, 20)]])
    (prefilled, *_) = world.step(sequences, [0, LENGTH - 1, *[1] * 18])
    (decoded, *_) = world.step(sequences, [0, 1, *[1] * 18])
    assert torch.equal(torch.cat((prefilled, decoded)), lonely)


@EVERY_NATIVE
@EVERY_DTYPE
def test_the_number_of_threads_does_not_change_a_bit(kernels: Kernels, dtype: torch.dtype) -> None:
    results = []
    for count in (1, 2, 7):
        with threads(count):
            results.append(alone(kernels, dtype, [LENGTH - 2, 1, 1]))
    assert all(torch.equal(result, results[0]) for result in results)


@EVERY_NATIVE
def test_the_block_size_does_not_change_a_bit(kernels: Kernels) -> None:
    narrow, wide = (alone(kernels, torch.bfloat16, [LENGTH - 1, 1], block_size=size) for size in (32, 128))
    assert torch.equal(narrow, wide)


@EVERY_NATIVE
@EVERY_DTYPE
def test_what_an_earlier_owner_left_in_a_block_has_no_effect(kernels: Kernels, dtype: torch.dtype) -> None:
    sequence = random_sequence(SHAPE, 45, torch.bfloat16, seed=5)
    clean, dirty = (AttentionWorld(SHAPE, kernels, dtype=dtype) for _ in range(2))
    dirty.poison()
    for length in (20, 1, 24):
        assert torch.equal(dirty.step([sequence], [length])[0], clean.step([sequence], [length])[0])
