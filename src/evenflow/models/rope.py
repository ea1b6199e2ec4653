"""Rotary position embedding: pair (x[i], x[i + head_dim/2]) of a head turns by position * frequency[i].

    frequency[i] = theta ** (-2i / head_dim), then stretched for contexts longer than the model was trained on

Frequencies are computed once per distinct `RopeConfig`, in float32 and in transformers' order of operations: at
position 8000 an error of one unit in the last place of a frequency is already half a thousandth of a radian.
"""

import math

import torch
from torch import Tensor

from evenflow.models.config import FrequencyFactors, LinearScaling, Llama3Scaling, RopeConfig, YarnScaling


class RotaryEmbedding:
    """`angles(positions)` gives what `rotate` needs."""

    __slots__ = ("attention_factor", "frequencies")

    def __init__(self, config: RopeConfig, head_dim: int, device: torch.device) -> None:
        self.frequencies = inverse_frequencies(config, head_dim).to(device)
        self.attention_factor = config.scaling.attention_factor if isinstance(config.scaling, YarnScaling) else 1.0

    def angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines, each float32 [T, 1, head_dim/2], for any number of heads."""
        turns = (positions.to(torch.float32)[:, None] * self.frequencies).unsqueeze(1)
        cos, sin = turns.cos(), turns.sin()
        if self.attention_factor != 1.0:
            cos.mul_(self.attention_factor)
            sin.mul_(self.attention_factor)
        return cos, sin


def rotate(heads: Tensor, angles: tuple[Tensor, Tensor], dtype: torch.dtype) -> Tensor:
    """Rotate float32 `heads` [T, heads, head_dim]; the result has `dtype`."""
    cos, sin = angles
    half = heads.shape[-1] // 2
    first, second = heads[..., :half], heads[..., half:]
    rotated = torch.empty_like(heads)
    torch.mul(first, cos, out=rotated[..., :half]).addcmul_(second, sin, value=-1.0)
    torch.mul(second, cos, out=rotated[..., half:]).addcmul_(first, sin)
    return rotated.to(dtype)


def inverse_frequencies(config: RopeConfig, head_dim: int) -> Tensor:
    """Radians per position of each pair, float32 [head_dim/2]."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).to(torch.float32) / head_dim
    plain = 1.0 / (config.theta**exponents)
    match config.scaling:
        case None:
            return plain
        case LinearScaling(factor):
            return plain / factor
        case FrequencyFactors(factors):
            return plain / torch.tensor(factors, dtype=torch.float32)
        case Llama3Scaling() as scaling:
            return _llama3(plain, scaling)
        case YarnScaling() as scaling:
            return _yarn(config.theta, exponents, scaling)


def _llama3(plain: Tensor, scaling: Llama3Scaling) -> Tensor:
    original = scaling.original_max_position_embeddings
    wavelength = 2 * math.pi / plain
    long = wavelength > original / scaling.low_freq_factor
    short = wavelength < original / scaling.high_freq_factor
    smooth = (original / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    stretched = torch.where(long, plain / scaling.factor, plain)
    blended = (1 - smooth) * stretched / scaling.factor + smooth * stretched
    return torch.where(~long & ~short, blended, stretched)


def _yarn(theta: float, exponents: Tensor, scaling: YarnScaling) -> Tensor:
    """Pairs that turn often within the original context are kept, slow ones stretched, a ramp in between."""
    head_dim = 2 * len(exponents)

    def pair_turning(rotations: float) -> float:
        context = scaling.original_max_position_embeddings
        return head_dim * math.log(context / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair_turning(scaling.beta_fast), pair_turning(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001
    ramp = torch.clamp((torch.arange(head_dim // 2, dtype=torch.float32) - low) / (high - low), 0, 1)
    waves = theta**exponents
    kept, keep = 1.0 / waves, 1 - ramp
    return (1.0 / (scaling.factor * waves)) * (1 - keep) + kept * keep
