"""Paged attention against the textbook, for every body that this machine can run."""

from collections.abc import Sequence
from functools import cache

import pytest
import torch

from evenflow.executors.torch.turn import Turn, turned
from evenflow.kernels.native import Kernels
from unit.kernels.attention_world import AttentionWorld, Shape, Tokens, dense, random_sequence, runnable_kernels

EVERY_BODY = pytest.mark.parametrize("kernels", runnable_kernels(), ids=lambda k: k.isa or "torch")
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.int8: 8e-2}

SHAPES = {
    "smollm2": Shape(),
    "multi-head, 32": Shape(4, 4, 32, attention_scale=0.2),
    "head size 80": Shape(4, 2, 80, attention_scale=0.11),
    "head size 96, one kv head": Shape(5, 1, 96),
    "head size 128": Shape(8, 2, 128, attention_scale=0.09),
    "gemma: head size 256, window": Shape(4, 1, 256, sliding_windows=(50,), attention_scale=0.0625),
    "odd head size": Shape(4, 2, 72),
    "group of 20 and a window of 1": Shape(20, 1, 64, sliding_windows=(1,)),
    "window across partitions": Shape(2, 1, 64, sliding_windows=(530,)),
}
STEPS = [(70, 1, 33, 0), (1, 15, 1, 2), (1, 1, 40, 600), (1, 1, 1, 1), (1, 0, 100, 1)]


@cache
def expected(shape: Shape, activation: torch.dtype) -> Sequence[tuple[Tokens, torch.Tensor]]:
    """Sequences as long as the columns of STEPS, and their attention: one answer for all bodies and number formats."""
    lengths = map(sum, zip(*STEPS, strict=True))
    sequences = [random_sequence(shape, length, activation, seed) for seed, length in enumerate(lengths)]
    return [(sequence, dense(shape, sequence)) for sequence in sequences]


def assert_matches_dense(
    kernels: Kernels, shape: Shape, dtype: torch.dtype, activation: torch.dtype, **world: int
) -> None:
    paged = AttentionWorld(shape, kernels, dtype=dtype, **world)
    sequences = [sequence for sequence, _ in expected(shape, activation)]
    outputs: list[list[torch.Tensor]] = [[] for _ in sequences]
    for lengths in STEPS:
        results = iter(paged.step(sequences, lengths))
        for i, length in enumerate(lengths):
            if length:
                outputs[i].append(next(results))
    for (_, attention), parts in zip(expected(shape, activation), outputs, strict=True):
        difference = (torch.cat(parts).double() - attention).abs().max().item()
        assert difference < TOLERANCE[dtype]


@EVERY_BODY
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_chunks_and_decodes_match_dense_attention(kernels: Kernels, shape: Shape, dtype: torch.dtype) -> None:
    activation = torch.float32 if dtype == torch.float32 else torch.bfloat16
    assert_matches_dense(kernels, shape, dtype, activation)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_every_body_rounds_to_int8_alike(shape: Shape) -> None:
    """The native bodies agree to a hundredth of what int8 costs; the fallback, which sums in another order and so
    rounds other values up, to a third of it."""
    sequence = random_sequence(shape, 300, torch.float32, seed=9)
    fallback, *bodies = [
        torch.cat(AttentionWorld(shape, kernels, dtype=torch.int8).step([sequence], [300])).double()
        for kernels in runnable_kernels()
    ]
    rounding = (fallback - dense(shape, sequence)).abs().mean()
    for body in bodies:
        assert (body - bodies[0]).abs().mean() < 0.01 * rounding
        assert (body - fallback).abs().mean() < rounding / 3


@EVERY_BODY
@pytest.mark.parametrize("block_size", [5, 32, 48, 128])
def test_any_block_size_serves(kernels: Kernels, block_size: int) -> None:
    assert_matches_dense(kernels, Shape(), torch.bfloat16, torch.float32, block_size=block_size)


@EVERY_BODY
def test_layers_keep_their_own_keys_and_windows(kernels: Kernels) -> None:
    shape = Shape(sliding_windows=(None, 8))
    world = AttentionWorld(shape, kernels, dtype=torch.float32)
    sequence = random_sequence(shape, 40, torch.float32, 0)
    (wide,) = world.step([sequence], [40], layer=0)
    (narrow,) = AttentionWorld(shape, kernels, dtype=torch.float32).step([sequence], [40], layer=1)
    torch.testing.assert_close(wide.double(), dense(shape, sequence, 0), atol=2e-5, rtol=0)
    torch.testing.assert_close(narrow.double(), dense(shape, sequence, 1), atol=2e-5, rtol=0)


@EVERY_BODY
def test_slices_of_a_fused_projection_are_taken_as_they_are(kernels: Kernels) -> None:
    shape = Shape()
    sequence = random_sequence(shape, 21, torch.bfloat16, 3)
    fused = torch.cat((sequence.q, sequence.k, sequence.v), dim=1)
    sliced = Tokens(fused[:, :9], fused[:, 9:12], fused[:, 12:])
    (expected,) = AttentionWorld(shape, kernels, dtype=torch.bfloat16).step([sequence], [21])
    (actual,) = AttentionWorld(shape, kernels, dtype=torch.bfloat16).step([sliced], [21])
    assert torch.equal(actual, expected)


@EVERY_BODY
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
@pytest.mark.parametrize("qk_norm", [False, True], ids=["plain", "qk norm"])
@pytest.mark.parametrize("shape", [Shape(), Shape(4, 2, 72), Shape(4, 1, 256)], ids=lambda s: str(s.head_dim))
def test_fused_norm_and_rotation_match_their_definition(
    kernels: Kernels, shape: Shape, dtype: torch.dtype, qk_norm: bool
) -> None:
    activation = torch.float32 if dtype == torch.float32 else torch.bfloat16
    sequence = random_sequence(shape, 37, activation, seed=4)
    angles = torch.randn(37, 1, shape.head_dim // 2, generator=torch.Generator().manual_seed(5))
    weights = torch.linspace(0.5, 1.5, (shape.num_heads + shape.num_kv_heads) * shape.head_dim)
    turn = Turn(angles.cos(), angles.sin(), weights.view(-1, shape.head_dim) if qk_norm else None, eps=1e-5)
    qk = turned(torch.cat((sequence.q, sequence.k), dim=1), turn)
    rotated = Tokens(qk[:, : shape.num_heads], qk[:, shape.num_heads :], sequence.v)
    out = AttentionWorld(shape, kernels, dtype=dtype).fused_step(sequence, turn)
    assert (out.double() - dense(shape, rotated)).abs().max().item() < TOLERANCE[dtype]


@EVERY_BODY
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
@pytest.mark.parametrize("shape", [Shape(), Shape(4, 1, 72, sliding_windows=(9,))], ids=["full", "window"])
def test_what_the_pool_held_before_cannot_be_seen(kernels: Kernels, shape: Shape, dtype: torch.dtype) -> None:
    """NaN comes through a mask: 0 * NaN is NaN."""
    world = AttentionWorld(shape, kernels, dtype=dtype)
    world.poison()
    sequences = [random_sequence(shape, length, torch.float32, length) for length in (41, 3, 20)]
    outputs: list[list[torch.Tensor]] = [[], [], []]
    for lengths in ((39, 1, 17), (1, 1, 1), (1, 1, 2)):
        for output, result in zip(outputs, world.step(sequences, lengths), strict=True):
            output.append(result)
    for sequence, parts in zip(sequences, outputs, strict=True):
        assert (torch.cat(parts).double() - dense(shape, sequence)).abs().max().item() < TOLERANCE[dtype]


@EVERY_BODY
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
def test_a_query_of_zeros_sees_all_its_keys_alike_and_no_others(kernels: Kernels, dtype: torch.dtype) -> None:
    """Scores that are all zero: what is masked must stay masked, whatever a query's scale is."""
    shape = Shape(sliding_windows=(300,))
    drawn = random_sequence(shape, 600, torch.float32, seed=6)
    sequence = Tokens(torch.zeros_like(drawn.q), drawn.k, drawn.v)
    (out,) = AttentionWorld(shape, kernels, dtype=dtype).step([sequence], [600])
    assert (out.double() - dense(shape, sequence)).abs().max().item() < TOLERANCE[dtype]


@EVERY_BODY
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
def test_values_of_very_different_sizes_keep_their_own(kernels: Kernels, dtype: torch.dtype) -> None:
    """A row in which the keys that count most have the smallest values, and some have none at all."""
    shape = Shape()
    drawn = random_sequence(shape, 600, torch.float32, seed=7)
    size = torch.logspace(-4, 0, 600).view(-1, 1, 1).repeat(1, shape.num_kv_heads, 1)
    size[::7] = 0.0
    sequence = Tokens(drawn.q, drawn.k * torch.linspace(2.0, 0.5, 600).view(-1, 1, 1), drawn.v * size)
    (out,) = AttentionWorld(shape, kernels, dtype=dtype).step([sequence], [600])
    expected = dense(shape, sequence)
    error = (out.double() - expected).abs().amax(dim=1) / expected.abs().amax(dim=1).clamp_min(1e-6)
    assert error.max().item() < TOLERANCE[dtype]
