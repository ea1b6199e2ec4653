"""Settings that a person wrote, from a file that may be anything: a device without an end, a film, another encoding."""

from pathlib import Path

from evenflow.core.errors import ConfigError


def read_small_text(path: Path, most_bytes: int) -> str:
    """Raises ConfigError for a file of more than `most_bytes`, OSError and UnicodeDecodeError as they come."""
    with path.open("rb") as file:
        data = file.read(most_bytes + 1)  # not by its size: a pipe and a device have none
    if len(data) > most_bytes:
        raise ConfigError(f"{path} is larger than {most_bytes} bytes")
    return data.decode()
