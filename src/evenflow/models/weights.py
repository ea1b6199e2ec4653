"""Weights by name, from safetensors or GGUF, written straight into the tensor that will hold them.

`read_into(name, out)` fills `out`, which may be a slice of a fused matrix and is already in the model's dtype, so the peak
is one tensor above the model. Names are Hugging Face's; `gguf_weights.py` translates. A missing tensor, or one of another
shape than `out`, is a ModelError naming file and tensor.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from torch import Tensor

from evenflow.core.errors import ModelError


class WeightSource(Protocol):
    def __contains__(self, name: str, /) -> bool: ...

    def read_into(self, name: str, out: Tensor) -> None: ...


def require_shape(path: Path, name: str, found: Sequence[int], wanted: Sequence[int]) -> None:
    if tuple(found) != tuple(wanted):
        raise ModelError(f"{path}: tensor '{name}' has shape {list(found)}, but the config asks for {list(wanted)}.")
