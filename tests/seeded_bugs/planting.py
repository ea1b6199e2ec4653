"""The suite is itself tested: each known way to break the core, put into a copy of the package, must turn it red.

A patch must fit the source exactly once, so a change of the core that moves a bug's place fails here and asks for it to
be placed again. The part of the suite that must find the bugs is fast and deterministic. The bugs are in core_bugs.py,
policy_bugs.py and swap_bugs.py; each list has a test file of its own, because a file is what a test process takes.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import evenflow.core.scheduler
from seeded_bugs.core_bugs import Bug

TESTS = Path(__file__).parents[1]
PACKAGE = Path(evenflow.core.scheduler.__file__).parents[1]
SUITE = [
    "timeline",
    "unit/core",
    "property/test_sweep.py",
    "property/test_kv_machine.py",
    "property/test_policies.py::test_every_promise_is_put_to_the_test",
]
FOUND, NOT_FOUND = 1, 0  # pytest's exit codes: tests failed, all passed


def copy_package(target: Path) -> Path:
    ignore = shutil.ignore_patterns("__pycache__", "*.so")
    return Path(shutil.copytree(PACKAGE, target / "evenflow", ignore=ignore))


def plant(bug: Bug, root: Path) -> None:
    for file, old, new in bug.patches:
        path = root / "core" / file
        text = path.read_text()
        assert text.count(old) == 1, f"{file} has {text.count(old)} times, not once:\n{old}"
        path.write_text(text.replace(old, new))
        compile(path.read_text(), str(path), "exec")


def run_suite(root: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(root.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # a second less for each bug
        "HYPOTHESIS_PROFILE": "ci",
    }
    check_origin = f"import evenflow.core.scheduler as s; assert s.__file__.startswith({str(root)!r}), s.__file__"
    suite = [str(TESTS / part) for part in SUITE]
    run = f"import sys, pytest; sys.exit(pytest.main(['-xq', '-p', 'no:cacheprovider', *{suite!r}]))"
    return subprocess.run(
        [sys.executable, "-c", f"{check_origin}; {run}"],
        cwd=TESTS.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def assert_found(bug: Bug, tmp_path: Path) -> None:
    root = copy_package(tmp_path)
    plant(bug, root)
    result = run_suite(root)
    assert result.returncode == FOUND, f"nothing failed with {bug.name}\n{result.stdout[-3000:]}{result.stderr[-3000:]}"
