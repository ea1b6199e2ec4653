"""GGUF files are read to the byte, and broken ones are refused by name before anything large is allocated."""

import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as Kind
from transformers.integrations.gguf.dequant import dequantize as reference_dequantize

from evenflow.core.errors import ModelError
from evenflow.models import gguf_file
from evenflow.models.gguf_file import GGUFFile


def small_file(path: Path) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("a.number", 7)
    writer.add_float32("a.float", 0.5)
    writer.add_bool("a.flag", True)
    writer.add_string("a.text", "naïve")
    writer.add_array("texts", ["a", "", "語"])
    writer.add_array("numbers", [1, 2, 3])
    writer.add_tensor("matrix", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.add_tensor("vector", np.array([1.5, -2.0], dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_metadata_and_tensors_are_read_as_written(tmp_path: Path) -> None:
    file = GGUFFile(small_file(tmp_path / "m.gguf"))
    assert file.metadata.text("general.architecture") == "llama"
    assert file.metadata.integer("a.number") == 7
    assert file.metadata.number("a.float") == 0.5
    assert file.metadata.flag("a.flag", False)
    assert file.metadata.text("a.text") == "naïve"
    assert file.metadata.texts("texts") == ["a", "", "語"]
    assert file.metadata.integers("numbers") == (1, 2, 3)
    matrix, vector = file.tensor("matrix"), file.tensor("vector")
    assert (matrix.shape, vector.shape) == ((2, 3), (2,))
    assert file.rows(matrix, 1, 2).tolist() == [[3.0, 4.0, 5.0]]
    assert file.rows(vector, 0, 1).tolist() == [[1.5, -2.0]]


@pytest.mark.parametrize(
    "kind",
    [Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q2_K, Kind.Q3_K, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K],
    ids=lambda kind: kind.name,
)
def test_blocks_of_any_kind_dequantise_like_an_independent_implementation(kind: Kind, tmp_path: Path) -> None:
    block_size, block_bytes = GGML_QUANT_SIZES[kind]
    raw = np.random.default_rng(5).integers(0, 256, (6, 2 * block_bytes), dtype=np.uint8)
    for scale in _scale_offsets(kind):  # random bits could spell infinity
        halves = np.random.default_rng(scale).normal(0, 0.1, (6, 2)).astype("<f2").view(np.uint8).reshape(6, 2, 2)
        for block in (0, 1):
            raw[:, block * block_bytes + scale : block * block_bytes + scale + 2] = halves[:, block]
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("w", raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    file = GGUFFile(tmp_path / "m.gguf")
    assert file.tensor("w").shape == (6, 2 * block_size)
    ours = np.concatenate([file.rows(file.tensor("w"), 0, 4), file.rows(file.tensor("w"), 4, 6)])
    reference = reference_dequantize(torch.from_numpy(raw), int(kind)).reshape(6, -1).numpy()
    assert np.abs(ours).max() > 0.1
    np.testing.assert_allclose(ours, reference, atol=1e-5)


def _scale_offsets(kind: Kind) -> tuple[int, ...]:
    """Where a block of this kind keeps its float16 scales."""
    return {
        Kind.Q8_0: (0,),
        Kind.Q4_0: (0,),
        Kind.Q4_1: (0, 2),
        Kind.Q2_K: (80, 82),
        Kind.Q3_K: (108,),
        Kind.Q4_K: (0, 2),
        Kind.Q5_K: (0, 2),
        Kind.Q6_K: (208,),
    }[kind]


def broken(change: Callable[[bytearray], object]) -> Callable[[bytes], bytes]:
    def apply(content: bytes) -> bytes:
        edited = bytearray(content)
        change(edited)
        return bytes(edited)

    return apply


def _u64(position: int, value: int) -> Callable[[bytes], bytes]:
    return broken(lambda content: struct.pack_into("<Q", content, position, value))


def _after(marker: bytes, code: str, value: int) -> Callable[[bytes], bytes]:
    return broken(lambda content: struct.pack_into(code, content, content.index(marker) + len(marker), value))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda content: b"", "empty"),
        (lambda content: b"PK\x03\x04" + content[4:], "not a GGUF file"),
        (broken(lambda content: struct.pack_into("<I", content, 4, 99)), "version 99"),
        (_u64(8, 1 << 60), "tensors"),
        (_u64(16, 1 << 60), "metadata entries"),
        (_u64(24, 1 << 62), "bytes of text"),
        (_after(b"a.number", "<I", 77), "unknown type 77"),
        (_after(b"texts" + struct.pack("<II", 9, 8), "<Q", 1 << 50), "array elements"),
        (_after(b"texts" + struct.pack("<IIQ", 9, 8, 3), "<Q", 1 << 40), "runs past its end"),
        (_after(b"numbers" + struct.pack("<I", 9), "<I", 9), "an array of type 9"),
        (lambda content: content.replace("naïve".encode(), b"na\xff\xfeve"), "not UTF-8"),
        (lambda content: content.replace(b"a.flag", b"a.text"), "metadata 'a.text' twice"),
        (lambda content: content.replace(b"vector", b"matrix"), "tensor 'matrix' twice"),
        (_after(b"matrix", "<I", 200), "dimensions of tensor 'matrix'"),
        (_after(b"matrix" + struct.pack("<I", 2), "<Q", 1 << 40), "tensor 'matrix' ends at byte"),
        (_after(b"matrix" + struct.pack("<I", 2), "<Q", 0), "tensor 'matrix' of shape [2, 0]"),
        (_after(b"matrix" + struct.pack("<IQQ", 2, 3, 2), "<I", 250), "tensor 'matrix' of unknown type 250"),
        (_after(b"matrix" + struct.pack("<IQQ", 2, 3, 2), "<I", int(Kind.Q8_0)), "which Q8_0 cannot store"),
        (_after(b"matrix" + struct.pack("<IQQI", 2, 3, 2, 0), "<Q", 1 << 63), "tensor 'matrix' ends at byte"),
    ],
)
def test_a_broken_file_is_refused_with_its_name_and_the_place(
    edit: Callable[[bytes], bytes], message: str, tmp_path: Path
) -> None:
    path = small_file(tmp_path / "m.gguf")
    path.write_bytes(edit(path.read_bytes()))
    with pytest.raises(ModelError, match=r"m\.gguf") as caught:
        GGUFFile(path)
    assert message in str(caught.value)


def test_a_file_cut_anywhere_before_its_last_tensor_is_refused(tmp_path: Path) -> None:
    content = small_file(tmp_path / "whole.gguf").read_bytes()
    last = GGUFFile(tmp_path / "whole.gguf").tensor("vector")
    path = tmp_path / "cut.gguf"
    for size in range(0, last.offset + last.num_bytes, 3):
        path.write_bytes(content[:size])
        with pytest.raises(ModelError, match=r"cut\.gguf"):
            GGUFFile(path)


def test_no_flip_of_a_header_byte_does_anything_but_load_or_name_the_file(tmp_path: Path) -> None:
    content = small_file(tmp_path / "whole.gguf").read_bytes()
    path, refused = tmp_path / "flipped.gguf", 0
    for position in range(GGUFFile(tmp_path / "whole.gguf").tensor("matrix").offset):
        path.write_bytes(content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :])
        try:
            GGUFFile(path)
        except ModelError as error:
            assert "flipped.gguf" in str(error)  # noqa: PT017  # not every flip is an error
            refused += 1
    assert refused > 100


def test_missing_files_folders_and_tensors_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"absent\.gguf: no such file"):
        GGUFFile(tmp_path / "absent.gguf")
    (tmp_path / "folder.gguf").mkdir()
    with pytest.raises(ModelError, match=r"folder\.gguf"):
        GGUFFile(tmp_path / "folder.gguf")
    with pytest.raises(ModelError, match=r"m\.gguf: tensor 'x' is missing"):
        GGUFFile(small_file(tmp_path / "m.gguf")).tensor("x")


def test_every_supported_kind_can_be_dequantised() -> None:
    for kind in gguf_file.SUPPORTED_KINDS:
        block_size, block_bytes = GGML_QUANT_SIZES[kind]
        assert gguf.quants.dequantize(np.zeros((1, block_bytes), np.uint8), kind).size == block_size
