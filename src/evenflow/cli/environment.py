"""`evenflow env`: what this machine gives evenflow, and what evenflow chose."""

import os
import platform
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from rich.console import Console
from rich.table import Table

from evenflow.engine.config import format_bytes
from evenflow.engine.memory import available_memory


def env() -> None:
    """Show the machine, the versions, and the kernels that were chosen and why."""
    table = Table("what", "value", show_header=False, box=None)
    table.add_row("evenflow", _version("evenflow"))
    table.add_row("python", f"{sys.version.split()[0]} on {platform.platform()}")
    table.add_row("torch", _version("torch"))
    table.add_row("cores", f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}")
    table.add_row("memory available", format_bytes(available_memory()))
    for name, value in _kernels():
        table.add_row(name, value)
    Console().print(table)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _kernels() -> tuple[tuple[str, str], ...]:
    try:
        kernels = import_module("evenflow.kernels")
    except ImportError as error:
        return (("kernels", f"none: {error}"),)
    return (("kernels", str(kernels.describe())),)
