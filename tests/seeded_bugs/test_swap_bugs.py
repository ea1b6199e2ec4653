"""See planting.py."""

from pathlib import Path

import pytest

from seeded_bugs.core_bugs import Bug
from seeded_bugs.planting import assert_found
from seeded_bugs.swap_bugs import SWAP_BUGS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("bug", SWAP_BUGS, ids=lambda bug: bug.name)
def test_the_bug_is_found(bug: Bug, tmp_path: Path) -> None:
    assert_found(bug, tmp_path)
