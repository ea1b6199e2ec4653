"""The rotation of the residual stream: it changes nothing but how evenly the channels are filled."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import rms_norm

from evenflow.kernels.operators import quantise_weight
from evenflow.models.rotation import Rotation

EVERY_SIZE = pytest.mark.parametrize("size", [1, 2, 3, 20, 72, 576, 896, 1152, 2048])


def draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@EVERY_SIZE
def test_a_rotation_is_orthogonal_and_even(size: int) -> None:
    matrix = Rotation(size)(torch.eye(size))
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(size), atol=1e-5, rtol=0.0)
    assert matrix.abs().max() * size**0.5 < 1.5
    assert torch.equal(matrix, Rotation(size)(torch.eye(size)))
    rows = draw(3, size, seed=1)
    torch.testing.assert_close(Rotation(size)(rows), rows @ matrix, atol=1e-4, rtol=0.0)


@EVERY_SIZE
def test_readers_and_writers_of_the_turned_stream_are_those_of_the_stream(size: int) -> None:
    rotation = Rotation(size)
    stream, norm = draw(7, size, seed=2), 1.0 + 0.3 * draw(size, seed=3)
    reader, writer, bias = draw(30, size, seed=4), draw(size, 40, seed=5), draw(size, seed=6)
    inner = draw(7, 40, seed=7)
    added = inner @ writer.T + bias
    read = rms_norm(stream + added, (size,), norm) @ reader.T
    turned = stream.clone()
    rotation.turn_embedding(turned)
    rotation.turn_reader(reader, norm)
    rotation.turn_writer(writer, bias)
    turned_added = inner @ writer.T + bias
    torch.testing.assert_close(turned_added, rotation(added), atol=1e-3, rtol=1e-4)
    turned_read = rms_norm(turned + turned_added, (size,)) @ reader.T
    torch.testing.assert_close(turned_read, read, atol=size**0.5 * 1e-4, rtol=1e-4)


def test_an_outlier_no_longer_costs_the_other_channels_their_steps() -> None:
    rows = draw(50, 576, seed=8)
    rows[:, 17] *= 60.0

    def error(x: Tensor) -> float:
        values, scales = quantise_weight(x)
        return float((values * scales.unsqueeze(1) - x).square().mean())

    assert error(Rotation(576)(rows)) < 0.05 * error(rows)
