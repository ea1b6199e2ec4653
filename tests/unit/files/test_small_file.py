"""Small files, and what is none."""

from pathlib import Path

import pytest

from evenflow.core.errors import ConfigError
from evenflow.files.bounded_file import read_at_most
from evenflow.files.small_file import read_small_text


def test_a_file_of_just_the_size_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("é" * 5, encoding="utf-8")
    assert read_small_text(path, 10) == "é" * 5
    with pytest.raises(ConfigError, match=r"a is larger than 9 bytes"):
        read_small_text(path, 9)


def test_a_device_without_an_end_is_not_read_to_it() -> None:
    with pytest.raises(ConfigError, match=r"/dev/zero is larger than 10 bytes"):
        read_small_text(Path("/dev/zero"), 10)


def test_what_is_read_for_its_size_is_read_no_further() -> None:
    assert read_at_most(Path("/dev/zero"), 10) is None
