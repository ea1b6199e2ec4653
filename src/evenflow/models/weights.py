"""Weights by name, from safetensors or GGUF, written straight into the tensor that will hold them.

`require` checks that a tensor is there with the shape the config asks for, before anything is allocated for it: a
missing or misshapen one is a ModelError naming file and tensor. `read_into` then fills `out`, which may be a slice of a
fused matrix and is already in the model's dtype, so the peak is one tensor above the model. Names are Hugging Face's;
`weights_gguf.py` translates.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from torch import Tensor

from evenflow.core.errors import ModelError


class WeightSource(Protocol):
    def require(self, name: str, shape: Sequence[int]) -> None: ...

    def read_into(self, name: str, out: Tensor) -> None: ...


def same_shape(path: Path, name: str, found: Sequence[int], wanted: Sequence[int]) -> None:
    if tuple(found) != tuple(wanted):
        raise ModelError(f"{path}: tensor '{name}' has shape {list(found)}, but the config asks for {list(wanted)}.")
