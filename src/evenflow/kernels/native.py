"""Find and load the C++ kernels, or say in one line why not.

The library is plain C (abi.py) and uses OpenMP. torch brings an OpenMP runtime of its own,
under the file name that ours asks for, so torch is imported first and the process keeps a single pool of threads; where
torch uses another runtime, we stay with the torch fallback rather than let two pools fight over the cores.

`EVENFLOW_KERNELS` chooses: an instruction set (`amx`, `avx512bf16`, `avx512`, `avx2`, `portable`), `off` for the torch
fallback, or unset for the best that the processor runs.
"""

import ctypes
import os
from ctypes import POINTER, c_char_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch  # noqa: F401  (loads the OpenMP runtime that ours must find)

from evenflow.kernels.abi import ABI_VERSION, KernelTable
from evenflow.kernels.build import LIBRARY_NAME, SOURCE_FOLDER, source_id

ENVIRONMENT_VARIABLE = "EVENFLOW_KERNELS"
INSTRUCTION_SETS = ("amx", "avx512bf16", "avx512", "avx2", "portable")


@dataclass(frozen=True, slots=True)
class Kernels:
    """What was chosen and why. `table` is None where the torch fallback serves."""

    table: KernelTable | None
    isa: str | None
    reason: str


class KernelsUnavailable(Exception):
    """Why there are no native kernels, in one line."""


def load_kernels(isa: str | None = None) -> Kernels:
    """The kernels for `isa`, by default what the environment variable says. Never raises: a problem is the `reason`."""
    return _load(isa or os.environ.get(ENVIRONMENT_VARIABLE) or "auto")


@cache
def _load(wanted: str) -> Kernels:
    if wanted == "off":
        return Kernels(None, None, f"switched off by {ENVIRONMENT_VARIABLE}=off")
    if wanted != "auto" and wanted not in INSTRUCTION_SETS:
        known = ", ".join((*INSTRUCTION_SETS, "off"))
        return Kernels(None, None, f"{ENVIRONMENT_VARIABLE}={wanted} is not one of {known}")
    try:
        library = open_library(Path(__file__).parent / LIBRARY_NAME)
        table = _table(library, None if wanted == "auto" else wanted)
    except KernelsUnavailable as unavailable:
        return Kernels(None, None, str(unavailable))
    isa = table.isa.decode()
    why = "best that this processor runs" if wanted == "auto" else f"asked for by {ENVIRONMENT_VARIABLE} or the caller"
    return Kernels(table, isa, why)


def open_library(path: Path) -> ctypes.CDLL:
    """The library of this version, or KernelsUnavailable with the reason."""
    if not path.exists():
        raise KernelsUnavailable("not built; `python -m evenflow.kernels.build` builds them (it needs a C++ compiler)")
    if torch_openmp() is None:
        raise KernelsUnavailable("torch uses another OpenMP runtime than GNU's, and a process should have only one")
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise KernelsUnavailable(f"{path.name} cannot be loaded: {error}") from error
    try:
        version = library.evenflow_abi_version()
        library.evenflow_build_id.restype = c_char_p
        build_id = library.evenflow_build_id().decode()
        library.evenflow_kernels.restype = POINTER(KernelTable)
        library.evenflow_kernels.argtypes = [c_char_p]
    except AttributeError as error:
        raise KernelsUnavailable(f"{path.name} is not evenflow's library: {error}") from error
    if version != ABI_VERSION:
        raise KernelsUnavailable(
            f"{path.name} has ABI {version} and this evenflow needs {ABI_VERSION}; `python -m evenflow.kernels.build` "
            "rebuilds it"
        )
    if SOURCE_FOLDER.is_dir() and build_id != source_id():
        raise KernelsUnavailable(
            "built from other sources than these; `python -m evenflow.kernels.build` rebuilds them"
        )
    return library


def _table(library: ctypes.CDLL, isa: str | None) -> KernelTable:
    found = library.evenflow_kernels(isa.encode() if isa else None)
    if not found:
        raise KernelsUnavailable(f"this processor or operating system does not run {isa}")
    table: KernelTable = found.contents
    return table


def torch_openmp() -> str | None:
    """The file of the GNU OpenMP runtime that torch brought in, by the name that our library will look for."""
    try:
        mapped = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    files = {line.split(maxsplit=5)[5] for line in mapped.splitlines() if "libgomp" in line}
    return next((file for file in sorted(files) if Path(file).name.startswith("libgomp.so.1")), None)
