"""A file is written whole or stays as it was."""

import os
import resource
from pathlib import Path

import pytest

from evenflow.files.whole_file import check_place, write_whole


def test_it_replaces_what_was_there(tmp_path: Path) -> None:
    for data in (b"one", b"two"):
        write_whole(tmp_path / "a", data)
        assert (tmp_path / "a").read_bytes() == data
    assert os.listdir(tmp_path) == ["a"]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "a")
    write_whole(tmp_path / "link", b"x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a").read_bytes() == b"x"


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_whole(path, b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_whole(path, b"new" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_device_is_written_to() -> None:
    write_whole(Path("/dev/null"), b"x")
    check_place(Path("/dev/null"))


def test_a_place_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    check_place(tmp_path / "a")
    assert os.listdir(tmp_path) == []
    for nowhere in (tmp_path, tmp_path / "no" / "a"):
        with pytest.raises(OSError, match="directory"):
            check_place(nowhere)
