"""Weights of a Hugging Face folder: model.safetensors, or the shards that model.safetensors.index.json lists.

The `safetensors` package maps the files and checks their headers. The index is untrusted: a shard is a plain file name
in the folder, nothing else.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from evenflow.core.errors import ModelError
from evenflow.models.fields import read_json_object
from evenflow.models.weights import same_shape

MAX_INDEX_BYTES = 64 << 20
_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"

_FLOATS = frozenset({torch.float32, torch.float16, torch.bfloat16, torch.float64})


class _TensorFile(Protocol):
    """What is used of a `safe_open`, whose methods have no types."""

    def keys(self) -> Sequence[str]: ...

    def get_slice(self, name: str, /) -> "_TensorSlice": ...

    def get_tensor(self, name: str, /) -> Tensor: ...


class _TensorSlice(Protocol):
    def get_shape(self) -> Sequence[int]: ...


class FolderWeights:
    """Open until closed; use as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._stack = ExitStack()
        self._files: dict[Path, _TensorFile] = {}
        self._where: dict[str, Path] = {}
        try:
            if (folder / _INDEX).is_file():
                self._open_shards(folder)
            elif (folder / _SINGLE).is_file():
                path = folder / _SINGLE
                self._where = dict.fromkeys(self._open(path).keys(), path)
            else:
                raise ModelError(f"{folder}: no {_SINGLE} and no {_INDEX}.")
        except BaseException:
            self._stack.close()
            raise
        self._folder = folder

    def __enter__(self) -> "FolderWeights":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def require(self, name: str, shape: Sequence[int]) -> None:
        path = self._where.get(name)
        if path is None:
            raise ModelError(f"{self._folder}: tensor '{name}' is missing.")
        same_shape(path, name, self._files[path].get_slice(name).get_shape(), shape)

    def read_into(self, name: str, out: Tensor) -> None:
        path = self._where[name]
        try:
            tensor = self._files[path].get_tensor(name)
        except SafetensorError as error:
            raise ModelError(f"{path}: tensor '{name}' cannot be read: {error}.") from error
        if tensor.dtype not in _FLOATS:
            raise ModelError(f"{path}: tensor '{name}' is {tensor.dtype}; use an unquantised copy or a .gguf file.")
        out.copy_(tensor)

    def _open(self, path: Path) -> _TensorFile:
        try:
            self._files[path] = self._stack.enter_context(safe_open(path, framework="pt"))
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{path}: corrupt or truncated safetensors file: {error}.") from error
        return self._files[path]

    def _open_shards(self, folder: Path) -> None:
        shards = _shard_names(folder / _INDEX)
        for name in sorted(set(shards.values())):
            if not (folder / name).is_file():
                raise ModelError(f"{folder / name}: no such file, though {_INDEX} lists it.")
            self._open(folder / name)
        held = {path: frozenset(file.keys()) for path, file in self._files.items()}
        for tensor, name in shards.items():
            if tensor not in held[folder / name]:
                raise ModelError(f"{folder / name}: tensor '{tensor}' is missing, though {_INDEX} lists it there.")
            self._where[tensor] = folder / name


def _shard_names(index: Path) -> Mapping[str, str]:
    weight_map = read_json_object(index, max_bytes=MAX_INDEX_BYTES).optional_object("weight_map")
    if weight_map is None:
        raise ModelError(f"{index}: 'weight_map' is missing.")
    shards: dict[str, str] = {}
    for tensor in weight_map:
        name = weight_map.text(tensor)
        if name != Path(name).name or not name.endswith(".safetensors"):
            raise weight_map.error(f"'{name}' is not the name of a .safetensors file in the folder.")
        shards[tensor] = name
    return shards
