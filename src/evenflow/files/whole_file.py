"""Files that are there whole or not at all: a full disk or a kill while one is written leaves what was there before."""

import os
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """A pipe or a device is written to as it is. Raises OSError."""
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    target = path.resolve()  # a link stays one
    partial = _partial(target)
    try:
        partial.write_bytes(data)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def check_place(path: Path) -> None:
    """Before work whose result goes to `path`. Raises OSError if it could not be written there now."""
    if path.exists() and not path.is_file():
        with path.open("ab"):
            return
    partial = _partial(path.resolve())
    try:
        partial.write_bytes(b"")
    finally:
        partial.unlink(missing_ok=True)


def _partial(path: Path) -> Path:
    return path.with_name(path.name + ".partial")
