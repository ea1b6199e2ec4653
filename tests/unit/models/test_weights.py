"""A model whose files are incomplete, misshapen or broken is refused with the file and the tensor named."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType as Kind
from safetensors.torch import load_file, save_file

from evenflow.core.errors import ConfigError, ModelError
from evenflow.kernels.native import load_kernels
from evenflow.kernels.native_operators import select_operators
from evenflow.models.loading import load_model
from tiny_models import tiny_model, write_gguf


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    tiny_model("llama").save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sharded")
    tiny_model("llama").save_pretrained(folder, max_shard_size="60KB")
    return folder


def edit_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")


def edit_bytes(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return apply


def _without(name: str) -> Callable[[Path], None]:
    return lambda folder: edit_tensors(folder, lambda tensors: tensors.pop(name))


def _with(name: str, tensor: torch.Tensor) -> Callable[[Path], None]:
    return lambda folder: edit_tensors(folder, lambda tensors: tensors.update({name: tensor}))


def _config(**values: object) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | values))

    return apply


Q_PROJ = "model.layers.1.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_without(Q_PROJ), f"tensor '{Q_PROJ}' is missing"),
        (_without("lm_head.weight"), "tensor 'lm_head.weight' is missing"),
        (_with(Q_PROJ, torch.zeros(64, 32)), f"tensor '{Q_PROJ}' has shape [64, 32], but the config asks for [64, 64]"),
        (_with("model.norm.weight", torch.zeros(1, 64)), "tensor 'model.norm.weight' has shape [1, 64]"),
        (_with(Q_PROJ, torch.zeros(64, 64, dtype=torch.int8)), f"tensor '{Q_PROJ}' is torch.int8"),
        (_config(vocab_size=1 << 24, hidden_size=1 << 20, head_dim=16), "has shape"),
        (_config(attention_bias=True), "q_proj.bias' is missing"),
        (_config(num_hidden_layers=4), "tensor 'model.layers.3.input_layernorm.weight' is missing"),
        (edit_bytes("model.safetensors", lambda content: content[:-100]), "corrupt or truncated safetensors file"),
        (edit_bytes("model.safetensors", lambda content: content[:5]), "corrupt or truncated safetensors file"),
        (edit_bytes("model.safetensors", lambda content: b""), "corrupt or truncated safetensors file"),
        (
            edit_bytes("model.safetensors", lambda content: (1 << 60).to_bytes(8, "little") + content[8:]),
            "corrupt or truncated safetensors file",
        ),
        (lambda folder: (folder / "model.safetensors").unlink(), "no model.safetensors and no"),
        (lambda folder: (folder / "config.json").unlink(), "config.json: no such file"),
    ],
)
def test_a_damaged_folder_is_refused(damage: Callable[[Path], None], message: str, whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(whole, folder)
    damage(folder)
    with pytest.raises(ModelError, match=str(folder)) as caught:
        load_model(folder, "fp32")
    assert message in str(caught.value)


def _index(change: Callable[[dict[str, str]], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / "model.safetensors.index.json"
        index = json.loads(path.read_text())
        change(index["weight_map"])
        path.write_text(json.dumps(index))

    return apply


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_index(lambda shards: shards.update({Q_PROJ: "../model.safetensors"})), "is not the name of a .safetensors"),
        (_index(lambda shards: shards.update({Q_PROJ: "/etc/passwd"})), "is not the name of a .safetensors file"),
        (_index(lambda shards: shards.update({Q_PROJ: "..\\x.safetensors/y"})), "is not the name of a .safetensors"),
        (_index(lambda shards: shards.update({Q_PROJ: "other.safetensors"})), "other.safetensors: no such file"),
        (_index(lambda shards: shards.update({"extra": shards[Q_PROJ]})), "tensor 'extra' is missing, though"),
        (_index(lambda shards: shards.pop(Q_PROJ)), f"tensor '{Q_PROJ}' is missing"),
        (edit_bytes("model.safetensors.index.json", lambda _: b"{}"), "'weight_map' is missing"),
        (edit_bytes("model.safetensors.index.json", lambda _: b'{"weight_map": {"a": 1}}'), "'a' must be a string"),
        (
            lambda folder: sorted(folder.glob("*.safetensors"))[1].unlink(),
            "no such file, though model.safetensors.index.json lists it",
        ),
    ],
)
def test_a_damaged_set_of_shards_is_refused(
    damage: Callable[[Path], None], message: str, sharded: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(sharded, folder)
    damage(folder)
    with pytest.raises(ModelError, match=str(folder)) as caught:
        load_model(folder, "fp32")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("blk.1.attn_q.weight", None, "tensor 'blk.1.attn_q.weight' is missing"),
        ("blk.1.attn_q.weight", np.zeros((64, 32), np.float32), "has shape [64, 32], but the config asks for [64, 64]"),
        (
            "blk.1.attn_q.weight",
            np.zeros((64, 64), np.int8),
            "tensor 'blk.1.attn_q.weight' is I8, which is not supported",
        ),
    ],
)
def test_a_gguf_file_with_a_wrong_tensor_is_refused(
    name: str, values: np.ndarray | None, message: str, tmp_path: Path
) -> None:
    write_gguf(tiny_model("llama"), tmp_path / "whole.gguf", Kind.F32)
    reader = gguf.GGUFReader(tmp_path / "whole.gguf")
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    for field in reader.fields.values():
        if field.name.startswith("llama."):
            writer.add_key_value(field.name, field.contents(), field.types[0])
    for tensor in reader.tensors:
        if tensor.name != name:
            writer.add_tensor(tensor.name, tensor.data)
        elif values is not None:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelError, match=r"m\.gguf") as caught:
        load_model(tmp_path / "m.gguf", "fp32")
    assert message in str(caught.value)


def test_an_unknown_dtype_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="dtype 'fp8' is not one of fp32, bf16"):
        load_model(tmp_path, "fp8")


def test_weights_stored_in_half_precision_load_into_either_dtype(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "half")
    edit_tensors(
        tmp_path / "half",
        lambda tensors: tensors.update({name: tensor.half() for name, tensor in tensors.items()}),
    )
    assert load_model(tmp_path / "half", "fp32").dtype is torch.float32
    assert load_model(tmp_path / "half", "bf16").dtype is torch.bfloat16


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("form", ["fp32", "bf16", "int8"])
def test_loading_side_by_side_gives_what_loading_in_turn_gives(whole: Path, form: str) -> None:
    def load() -> list[torch.Tensor]:
        operators = select_operators(load_kernels())
        int8, dtype = (operators, "bf16") if form == "int8" else (None, form)
        model = load_model(whole, dtype, int8=int8, panels=operators)
        return [tensor for layer in model.layers for tensor in layer.tensors if tensor is not None]

    side_by_side = load()
    assert torch.get_num_threads() == 3
    torch.set_num_threads(1)
    for one, other in zip(side_by_side, load(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.usefixtures("three_threads")
def test_a_file_that_is_refused_leaves_the_threads_as_they_were(whole: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(whole, tmp_path / "damaged")
    edit_tensors(folder, lambda tensors: tensors.pop(Q_PROJ))
    with pytest.raises(ModelError, match="is missing"):
        load_model(folder, "fp32")
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize("tied", [False, True])
def test_the_memory_of_the_weights_is_told_and_a_tied_head_counts_once(tmp_path: Path, tied: bool) -> None:
    reference = tiny_model("llama", tie_word_embeddings=tied)
    reference.save_pretrained(tmp_path)
    assert load_model(tmp_path, "fp32").weight_bytes == 4 * sum(p.numel() for p in reference.parameters())
