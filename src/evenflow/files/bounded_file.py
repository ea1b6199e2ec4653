"""The content of a file that may be anything: a pipe and a device have no size, and a file may grow."""

from pathlib import Path


def read_at_most(path: Path, most_bytes: int) -> bytes | None:
    """None if there is more. Raises OSError."""
    with path.open("rb") as file:
        data = file.read(most_bytes + 1)
    return data if len(data) <= most_bytes else None
