"""See planting.py."""

from pathlib import Path

import pytest

from seeded_bugs.core_bugs import BUGS, Bug
from seeded_bugs.planting import NOT_FOUND, assert_found, copy_package, run_suite

pytestmark = pytest.mark.slow


def test_without_a_bug_the_suite_is_green(tmp_path: Path) -> None:
    result = run_suite(copy_package(tmp_path))
    assert result.returncode == NOT_FOUND, result.stdout[-3000:] + result.stderr[-3000:]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_bug_is_found(bug: Bug, tmp_path: Path) -> None:
    assert_found(bug, tmp_path)
