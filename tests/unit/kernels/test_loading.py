"""What a machine lacks is said in one line, and never stops anything."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from evenflow.kernels import build, describe, native
from evenflow.kernels.abi import ABI_VERSION
from evenflow.kernels.native_operators import select_operators
from evenflow.kernels.processor import processor
from evenflow.kernels.torch_operators import TorchOperators


def loaded_in_a_fresh_process(setting: str) -> str:
    code = "from evenflow import kernels; print(kernels.describe())"
    environment = {"EVENFLOW_KERNELS": setting, "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_environment_can_switch_kernels_off() -> None:
    assert loaded_in_a_fresh_process("off") == "torch fallback: switched off by EVENFLOW_KERNELS=off"


def test_an_unknown_instruction_set_is_named_with_the_known_ones() -> None:
    said = loaded_in_a_fresh_process("sse9")
    assert said.startswith("torch fallback: EVENFLOW_KERNELS=sse9 is not one of amx, avx512bf16")


def test_the_description_is_one_line() -> None:
    assert describe()
    assert "\n" not in describe()


def test_a_missing_library_says_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(native.KernelsUnavailable, match=r"python -m evenflow\.kernels\.build"):
        native.open_library(tmp_path / build.LIBRARY_NAME)


def test_a_file_that_is_no_library_is_refused(tmp_path: Path) -> None:
    path = tmp_path / build.LIBRARY_NAME
    path.write_bytes(b"not an object file")
    with pytest.raises(native.KernelsUnavailable, match="cannot be loaded"):
        native.open_library(path)


def test_a_library_of_something_else_is_refused(tmp_path: Path) -> None:
    torch_folder = Path(torch.__file__).parent / "lib"
    path = tmp_path / build.LIBRARY_NAME
    path.write_bytes((torch_folder / "libtorch_global_deps.so").read_bytes())
    with pytest.raises(native.KernelsUnavailable):
        native.open_library(path)


def test_a_library_of_other_sources_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    if native.load_kernels().table is None:
        pytest.skip("no library here")
    monkeypatch.setattr(native, "source_id", lambda: "0123456789abcdef")
    with pytest.raises(native.KernelsUnavailable, match="built from other sources"):
        native.open_library(Path(native.__file__).parent / build.LIBRARY_NAME)


def test_a_library_with_another_abi_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    if native.load_kernels().table is None:
        pytest.skip("no library here")
    theirs = ABI_VERSION
    monkeypatch.setattr(native, "ABI_VERSION", theirs + 1)
    with pytest.raises(native.KernelsUnavailable, match=f"has ABI {theirs} and this evenflow needs {theirs + 1}"):
        native.open_library(Path(native.__file__).parent / build.LIBRARY_NAME)


def test_what_the_processor_has_is_read_from_the_system(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(
        "processor\t: 0\nmodel name\t: A Chip\nflags\t\t: fpu avx2 fma amx_int8\n\nprocessor\t: 1\nflags\t\t: fpu\n"
    )
    assert processor(cpuinfo) == ("A Chip", ("avx2", "fma", "amx_int8"))
    assert processor(tmp_path / "missing") == ("", ())


def test_no_compiler_is_a_sentence_not_a_crash(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(build.BuildError, match="no C\\+\\+ compiler found"):
        build.build_kernels(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_kernels_the_operators_are_torch() -> None:
    assert isinstance(select_operators(native.Kernels(None, None, "none here")), TorchOperators)


def test_the_process_has_one_openmp_runtime() -> None:
    importlib.import_module("evenflow.kernels.native").load_kernels()
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("no /proc")
    runtimes = {line.split(maxsplit=5)[5] for line in maps.read_text().splitlines() if "libgomp" in line}
    assert len(runtimes) <= 1
