"""A change of the core that moves a bug's place is told at once, not by the slow tests. See planting.py."""

from pathlib import Path

from seeded_bugs.core_bugs import BUGS
from seeded_bugs.planting import PACKAGE
from seeded_bugs.policy_bugs import POLICY_BUGS
from seeded_bugs.swap_bugs import SWAP_BUGS


def test_every_patch_fits_exactly_once() -> None:
    core = {str(path.relative_to(PACKAGE / "core")): path.read_text() for path in Path(PACKAGE, "core").rglob("*.py")}
    bugs = [*BUGS, *POLICY_BUGS, *SWAP_BUGS]
    assert [(bug.name, file) for bug in bugs for file, old, _ in bug.patches if core[file].count(old) != 1] == []
