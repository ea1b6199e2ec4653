"""Compile `csrc/` into one shared library beside this file, with the C++ compiler that is at hand.

    python -m evenflow.kernels.build

Each instruction set is a translation unit with its own flags; dispatch.cpp picks at run time, so one library serves
every processor of its architecture. The library carries a digest of its sources (`build_id`), by which the loader knows
a stale one. Also run by setup.py, as a file, before the package is importable: standard library only.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path

LIBRARY_NAME = "libevenflow_kernels.so"
SOURCE_FOLDER = Path(__file__).parent / "csrc"

COMMON_FLAGS = (
    "-std=c++20",
    "-O2",  # as fast as -O3 where the vectors are spelled out, and half the time to compile
    "-fPIC",
    "-fopenmp",
    "-fvisibility=hidden",
    "-ffp-contract=off",  # a multiply-add is fused where the source says so: the same bits from every template
    "-fno-math-errno",
    "-Wall",
    "-Wextra",
    "-Wno-maybe-uninitialized",  # GCC 12 warns about its own intrinsics
    "-Wno-uninitialized",
)
AVX2 = ("-mavx2", "-mfma", "-mf16c")
AVX512 = (*AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni", "-mprefer-vector-width=512")
AVX512_BF16 = (*AVX512, "-mavx512bf16")
PORTABLE: Mapping[str, tuple[str, ...]] = {"portable": ("-O3",)}  # here the compiler has to find the vectors
X86: Mapping[str, tuple[str, ...]] = {
    **PORTABLE,
    "avx2": AVX2,
    "avx512": AVX512,
    "avx512bf16": AVX512_BF16,
    "amx": (*AVX512_BF16, "-mamx-tile", "-mamx-int8", "-mamx-bf16"),
}


class BuildError(Exception):
    """No compiler, or it failed; the message is one line for a person."""


def source_id(folder: Path = SOURCE_FOLDER) -> str:
    """A digest of the sources and flags: what a library built from them says of itself."""
    digest = hashlib.sha256(repr((COMMON_FLAGS, sorted(_instruction_sets().items()))).encode())
    for path in sorted(folder.iterdir()):
        if path.suffix in {".h", ".cpp"}:
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def find_compiler() -> str:
    for name in (os.environ.get("CXX"), "g++", "clang++", "c++"):
        if name and (path := shutil.which(name)):
            return path
    raise BuildError("no C++ compiler found (tried $CXX, g++, clang++, c++)")


def build_kernels(target_folder: Path | None = None) -> Path:
    """Compile and link; the finished library replaces an older one in one move. Raises BuildError.

    An instruction set that the compiler does not know is left out, and those that hold it.
    """
    target = (target_folder or Path(__file__).parent) / LIBRARY_NAME
    compiler = find_compiler()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="evenflow-kernels-") as scratch:

        def compile_unit(unit: str, *flags: str) -> str:
            output = f"{scratch}/{unit}.o"
            _run((compiler, *COMMON_FLAGS, *flags, "-c", str(SOURCE_FOLDER / f"{unit}.cpp"), "-o", output))
            return output

        def compile_isa(isa: str) -> str | None:
            try:
                return compile_unit(f"isa_{isa}", *_instruction_sets()[isa])
            except BuildError:
                if isa in PORTABLE:
                    raise
                return None

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compile_isa, _instruction_sets()))
        # Each set holds the one before it, and its unit calls that one's.
        usable = takewhile(lambda path: path is not None, objects)
        built = {isa: path for isa, path in zip(_instruction_sets(), usable, strict=False) if path}
        with_isas = [f"-DEVENFLOW_WITH_{isa.upper()}" for isa in built]
        dispatch = compile_unit("dispatch", f'-DEVENFLOW_BUILD_ID="{source_id()}"', *with_isas)
        fresh = target.with_name(f".{target.name}.{os.getpid()}")
        _run((compiler, "-shared", "-fopenmp", "-s", dispatch, *built.values(), "-o", str(fresh)))
        fresh.replace(target)
    return target


def _instruction_sets() -> Mapping[str, tuple[str, ...]]:
    return X86 if platform.machine() in {"x86_64", "AMD64"} else PORTABLE


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:200])
        raise BuildError(f"{Path(command[0]).name} failed: {reason}")
    if done.stderr:
        sys.stderr.write(done.stderr)


if __name__ == "__main__":
    try:
        sys.stdout.write(f"built {build_kernels()}\n")
    except BuildError as error:
        sys.exit(f"evenflow kernels: {error}")
