"""Settings that a person wrote, from a file that may be anything: a device without an end, a film, another encoding."""

from pathlib import Path

from evenflow.core.errors import ConfigError
from evenflow.files.bounded_file import read_at_most


def read_small_text(path: Path, most_bytes: int) -> str:
    """Raises ConfigError for a file of more than `most_bytes`, OSError and UnicodeDecodeError as they come."""
    data = read_at_most(path, most_bytes)
    if data is None:
        raise ConfigError(f"{path} is larger than {most_bytes} bytes")
    return data.decode()
