"""What a user may call a model, and what to do about what is none."""

import importlib.util
from pathlib import Path

import pytest

from evenflow.core.errors import ModelError
from evenflow.models.source import resolve_model


def test_a_folder_with_config_and_a_gguf_file_are_taken_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "m.gguf").write_bytes(b"")
    assert resolve_model(str(tmp_path)) == tmp_path
    assert resolve_model(str(tmp_path / "m.gguf")) == tmp_path / "m.gguf"


def test_a_folder_that_holds_one_gguf_file_means_that_file(tmp_path: Path) -> None:
    (tmp_path / "m.GGUF").write_bytes(b"")
    assert resolve_model(str(tmp_path)) == tmp_path / "m.GGUF"
    (tmp_path / "n.gguf").write_bytes(b"")
    with pytest.raises(ModelError, match=r"holds 2 \.gguf files; name one of them"):
        resolve_model(str(tmp_path))


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match=r"a model is a folder with config\.json, or a file whose name ends in \.gguf"):
        resolve_model(str(tmp_path / "model.safetensors"))


def test_what_is_nowhere_lists_what_can_be_pulled(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no such file or folder, .*smollm2-135m, gemma3-270m"):
        resolve_model(str(tmp_path / "absent"))


@pytest.mark.parametrize(
    ("name", "meant"),
    [("smollm2-135", "smollm2-135m"), ("SmolLM2-135M", "smollm2-135m"), ("gemma3-27m", "gemma3-270m"), ("gpt-9", None)],
)
def test_a_misspelt_name_is_answered_with_the_nearest_one(name: str, meant: str | None) -> None:
    with pytest.raises(ModelError) as caught:
        resolve_model(name)
    assert ("did you mean" in str(caught.value)) == (meant is not None)
    assert meant is None or f"did you mean {meant}?" in str(caught.value)


def test_a_hub_name_without_the_hub_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install 'evenflow\[hub\]'.*evenflow model pull"):
        resolve_model("someone/some-model")


def test_a_hub_that_does_not_answer_says_what_works_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        ModelError, match=r"someone/some-model: no such folder, and the hub did not give it \(\w.*\w\'?\)\. Give"
    ):
        resolve_model("someone/some-model")
