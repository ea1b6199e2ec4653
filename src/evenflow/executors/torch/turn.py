"""What queries and keys meet between their projection and attention: in some models a norm of each head, a rotation.

Pair (x[i], x[i + head_dim / 2]) of a head turns by its token's angle i.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """`cos` and `sin` are float32, [T, head_dim / 2] or with a 1 between; `qk_norm` is float32
    [num_heads + num_kv_heads, head_dim], queries first."""

    cos: torch.Tensor
    sin: torch.Tensor
    qk_norm: torch.Tensor | None = None
    eps: float = 1e-6


def turned(heads: torch.Tensor, turn: Turn) -> torch.Tensor:
    """[T, num_heads + num_kv_heads, head_dim] of any dtype -> float32."""
    x = heads.float()
    if turn.qk_norm is not None:
        x = functional.rms_norm(x, x.shape[-1:], None, turn.eps) * turn.qk_norm
    cos, sin = (part.reshape(len(x), 1, -1) for part in (turn.cos, turn.sin))
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
