"""A log in parts: how files are named that were full, so that their order is plain.

    run.jsonl.1    run.jsonl.2    run.jsonl.3    run.jsonl
    oldest                        newest full    being written

A part keeps its number for good, and the header in it says the same number. Renaming all of them at each turn, as
logrotate does, would move the files under the feet of whoever reads them.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from evenflow.core.errors import ConfigError

_NUMBER = re.compile(r"\.(?P<number>[1-9][0-9]{0,11})(?:\.gz)?")


@dataclass(frozen=True, slots=True)
class Rotation:
    """A new part begins once one has `max_bytes`; the last `keep` full ones stay, older ones are removed."""

    max_bytes: int
    keep: int = 8

    def __post_init__(self) -> None:
        if self.max_bytes < 1:
            raise ConfigError(f"an event log must be rotated at 1 byte or more, not {self.max_bytes}")
        if not 1 <= self.keep <= 100_000:
            raise ConfigError(f"1 to 100000 full parts of an event log can be kept, not {self.keep}")


def part_path(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def parts_of(path: Path) -> list[tuple[int, Path]]:
    """The full parts that are there, oldest first. One that was compressed to .gz counts."""
    found = {}
    if path.parent.is_dir():
        for other in path.parent.iterdir():
            if other.name.startswith(path.name) and (name := _NUMBER.fullmatch(other.name[len(path.name) :])):
                found[int(name["number"])] = other
    return sorted(found.items())
