"""See planting.py."""

from pathlib import Path

import pytest

from seeded_bugs.core_bugs import Bug
from seeded_bugs.planting import assert_found
from seeded_bugs.policy_bugs import POLICY_BUGS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("bug", POLICY_BUGS, ids=lambda bug: bug.name)
def test_the_bug_is_found(bug: Bug, tmp_path: Path) -> None:
    assert_found(bug, tmp_path)
