"""Reading a GGUF file: metadata, the table of tensors, and rows of a tensor dequantised to float32.

    "GGUF" version  tensor_count  kv_count | key type value ... | name dims type offset ... | pad | tensor data
     4     u32      u64           u64        metadata             tensor table                     memory-mapped

The file is untrusted: every length is checked against the bytes that are left and against a limit, so a corrupt or
truncated file is one ModelError naming the file and the place, never a crash or a huge allocation. Little-endian GGUF
versions 2 and 3. Dequantisation is the `gguf` package's.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from evenflow.core.errors import ModelError
from evenflow.models.fields import Fields

MAX_TENSORS = 1 << 16
MAX_METADATA = 1 << 14
MAX_NAME_BYTES = 1 << 10
MAX_STRING_BYTES = 1 << 24
MAX_ARRAY_LENGTH = 1 << 22
MAX_TENSOR_DIMS = 4
MAX_ALIGNMENT = 1 << 16

_Kind = GGMLQuantizationType
SUPPORTED_KINDS = frozenset(
    {
        *(_Kind.F32, _Kind.F16, _Kind.BF16, _Kind.Q8_0, _Kind.Q4_0, _Kind.Q4_1, _Kind.Q5_0, _Kind.Q5_1),
        *(_Kind.Q2_K, _Kind.Q3_K, _Kind.Q4_K, _Kind.Q5_K, _Kind.Q6_K),
    }
)

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """`shape` is row-major, as torch has it; `offset` is from the start of the file."""

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    offset: int
    num_bytes: int

    @property
    def num_rows(self) -> int:
        return self.shape[0] if len(self.shape) > 1 else 1


class _Cursor:
    """Reads little-endian values one after the other and never past the end."""

    def __init__(self, path: Path, data: memoryview) -> None:
        self._path = path
        self._data = data
        self.size = len(data)
        self.position = 0

    def error(self, message: str) -> ModelError:
        return ModelError(f"{self._path}: corrupt or truncated GGUF file: {message} at byte {self.position}.")

    def take(self, size: int) -> memoryview:
        if size > self.size - self.position:
            raise self.error(f"{size} bytes wanted, {self.size - self.position} left")
        start, self.position = self.position, self.position + size
        return self._data[start : self.position]

    def values(self, code: str, count: int = 1) -> tuple[int | float | bool, ...]:
        layout = struct.Struct(f"<{count}{code}")
        return layout.unpack(self.take(layout.size))

    def integer(self, code: str) -> int:
        return int(self.values(code)[0])

    def count(self, code: str, limit: int, what: str) -> int:
        value = self.integer(code)
        if value > limit:
            raise self.error(f"{value} {what}, at most {limit} expected")
        return value

    def text(self, limit: int) -> str:
        size = self.count("Q", limit, "bytes of text")
        try:
            return str(self.take(size), "utf-8")
        except UnicodeDecodeError:
            raise self.error("text that is not UTF-8") from None

    def value(self, kind: int) -> object:
        if kind in _SCALARS:
            return self.values(_SCALARS[kind])[0]
        if kind == _STRING:
            return self.text(MAX_STRING_BYTES)
        if kind == _ARRAY:
            return self._array()
        raise self.error(f"metadata of unknown type {kind}")

    def _array(self) -> list[object]:
        kind = self.integer("I")
        count = self.count("Q", MAX_ARRAY_LENGTH, "array elements")
        if kind in _SCALARS:
            return list(self.values(_SCALARS[kind], count))
        if kind == _STRING:
            return self._texts(count)
        raise self.error(f"an array of type {kind}")

    def _texts(self, count: int) -> list[object]:
        """`text` in one loop: a vocabulary has a quarter of a million of them."""
        texts: list[object] = []
        data, position = self._data, self.position
        for _ in range(count):
            start = position + 8
            position = start + int.from_bytes(data[position:start], "little")
            if start > self.size or position > self.size or position - start > MAX_STRING_BYTES:
                raise self.error("a text of an array that runs past its end")
            try:
                texts.append(str(data[start:position], "utf-8"))
            except UnicodeDecodeError:
                raise self.error("an array with text that is not UTF-8") from None
        self.position = position
        return texts


class GGUFFile:
    """An open GGUF file; tensor data is mapped and read when asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = _mapped(path)
        cursor = _Cursor(path, self._data.data)
        if bytes(cursor.take(4)) != b"GGUF":
            raise ModelError(f"{path}: not a GGUF file (it does not start with 'GGUF').")
        version = cursor.integer("I")
        if version not in (2, 3):
            raise ModelError(f"{path}: GGUF version {version} is not supported (2 and 3 are).")
        num_tensors = cursor.count("Q", MAX_TENSORS, "tensors")
        num_metadata = cursor.count("Q", MAX_METADATA, "metadata entries")
        self.metadata = Fields(str(path), _read_metadata(cursor, num_metadata))
        self.tensors: Mapping[str, GGUFTensor] = _read_tensors(cursor, num_tensors, self._data_start)

    def _data_start(self, end_of_table: int) -> int:
        alignment = self.metadata.integer_or("general.alignment", 32)
        if not 0 < alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
            raise self.metadata.error(f"'general.alignment' must be a power of two, not {alignment}.")
        return (end_of_table + alignment - 1) // alignment * alignment

    def tensor(self, name: str) -> GGUFTensor:
        tensor = self.tensors.get(name)
        if tensor is None:
            raise ModelError(f"{self.path}: tensor '{name}' is missing.")
        return tensor

    def rows(self, tensor: GGUFTensor, start: int, stop: int) -> npt.NDArray[np.float32]:
        """A fresh float32 array of rows [start, stop) of a matrix. A vector is a matrix of one row."""
        if tensor.kind not in SUPPORTED_KINDS:
            raise ModelError(f"{self.path}: tensor '{tensor.name}' is {tensor.kind.name}, which is not supported.")
        row_bytes = tensor.num_bytes // tensor.num_rows
        # As one long row: the package walks rows in groups of 16, which costs more than the arithmetic.
        raw = self._data[tensor.offset + start * row_bytes : tensor.offset + stop * row_bytes].reshape(1, -1)
        values = dequantize(raw, tensor.kind).reshape(stop - start, tensor.shape[-1])
        return np.require(values, np.float32, ("C", "A", "W"))


def _mapped(path: Path) -> npt.NDArray[np.uint8]:
    try:
        return np.memmap(path, dtype=np.uint8, mode="r")
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file.") from None
    except ValueError:  # what memmap says of an empty file
        raise ModelError(f"{path}: not a GGUF file (it is empty).") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}.") from error


def _read_metadata(cursor: _Cursor, count: int) -> dict[str, object]:
    metadata: dict[str, object] = {}
    for _ in range(count):
        key = cursor.text(MAX_NAME_BYTES)
        if key in metadata:
            raise cursor.error(f"metadata '{key}' twice")
        metadata[key] = cursor.value(cursor.integer("I"))
    return metadata


def _read_tensors(cursor: _Cursor, count: int, data_start: Callable[[int], int]) -> dict[str, GGUFTensor]:
    entries = [_read_tensor(cursor) for _ in range(count)]
    start, size = data_start(cursor.position), cursor.size
    tensors: dict[str, GGUFTensor] = {}
    for entry in entries:
        tensor = GGUFTensor(entry.name, entry.shape, entry.kind, start + entry.offset, entry.num_bytes)
        if tensor.name in tensors:
            raise cursor.error(f"tensor '{tensor.name}' twice")
        if tensor.offset + tensor.num_bytes > size:
            raise cursor.error(f"tensor '{tensor.name}' ends at byte {tensor.offset + tensor.num_bytes} of {size}")
        tensors[tensor.name] = tensor
    return tensors


def _read_tensor(cursor: _Cursor) -> GGUFTensor:
    """One entry of the table; its offset still counts from the start of the tensor data."""
    name = cursor.text(MAX_NAME_BYTES)
    num_dims = cursor.count("I", MAX_TENSOR_DIMS, f"dimensions of tensor '{name}'")
    shape = tuple(int(size) for size in reversed(cursor.values("Q", num_dims)))
    kind_number, offset = cursor.integer("I"), cursor.integer("Q")
    try:
        kind = GGMLQuantizationType(kind_number)
    except ValueError:
        raise cursor.error(f"tensor '{name}' of unknown type {kind_number}") from None
    block_size, block_bytes = GGML_QUANT_SIZES[kind]
    num_elements = 1
    for size in shape:
        num_elements *= size
    if not shape or num_elements == 0 or shape[-1] % block_size:
        raise cursor.error(f"tensor '{name}' of shape {list(shape)}, which {kind.name} cannot store,")
    return GGUFTensor(name, shape, kind, offset, num_elements // block_size * block_bytes)
