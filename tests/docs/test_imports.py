"""What is imported when: looking at a plan, or asking for help, must not wait for torch."""

import subprocess
import sys

import pytest

# The slow ones. Each must stay out of what is imported.
HEAVY = {"torch", "transformers", "huggingface_hub"}


def imported_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    "module",
    ["evenflow", "evenflow.core.scheduler", "evenflow.cli.main", "evenflow.cli.serve", "evenflow.executors.shadow"],
)
def test_without_what_is_slow_to_import(module: str) -> None:
    imported = imported_by(f"import {module}")
    assert module in imported
    assert not imported & HEAVY


def test_the_core_alone_needs_no_package_but_evenflow() -> None:
    imported = imported_by("import evenflow.core.scheduler, evenflow.executors.shadow")
    assert not imported & {"numpy", "msgspec", "starlette", "uvicorn", "asyncio"}
