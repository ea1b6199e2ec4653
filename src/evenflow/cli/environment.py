"""`evenflow env`: what this machine gives evenflow, what evenflow chose, and why."""

import os
import platform
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from rich.console import Console
from rich.table import Table

from evenflow.engine.config import format_bytes
from evenflow.engine.memory import available_memory
from evenflow.kernels.build import LIBRARY_NAME, SOURCE_FOLDER, BuildError, find_compiler
from evenflow.kernels.processor import processor


def env() -> None:
    """Show the machine, the versions, and the kernels and number formats that were chosen and why."""
    table = Table("what", "value", show_header=False, box=None)
    for name, value in _rows():
        table.add_row(name, value)
    Console().print(table)


def _rows() -> Iterator[tuple[str, str]]:
    yield "evenflow", _version("evenflow")
    yield "python", f"{sys.version.split()[0]} on {platform.platform()}"
    yield "torch", _version("torch")
    name, flags = processor()
    yield "processor", name or platform.machine()
    yield "instruction sets", " ".join(flags) or "none that the kernels are written for"
    yield "cores", f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}"
    yield "memory available", format_bytes(available_memory())
    yield "compiler", _compiler()
    library = SOURCE_FOLDER.parent / LIBRARY_NAME
    yield "kernel library", str(library) if library.exists() else "not built"
    yield from _chosen()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _compiler() -> str:
    try:
        return find_compiler()
    except BuildError as error:
        return f"none: {error}"


def _chosen() -> tuple[tuple[str, str], ...]:
    """By name: torch may not be there."""
    try:
        formats = import_module("evenflow.executors.torch.formats")
    except ImportError as error:
        return (("kernels", f"none: {error}"),)
    kernels = import_module("evenflow.kernels")
    chosen = formats.choose("auto", "auto", "auto", import_module("evenflow.kernels.native").load_kernels())
    return (
        ("kernels", str(kernels.describe())),
        ("--dtype auto", str(chosen.dtype)),
        ("--quantize auto", f"{chosen.quantize}; only where it is asked for"),
        ("--kv-dtype auto", str(chosen.kv_dtype)),
    )
