"""Keys and the tenants they stand for."""

from pathlib import Path

import pytest

from evenflow.core.errors import ConfigError
from evenflow.server.api_keys import MAX_FILE_BYTES, ApiKeys


def file_of(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "keys"
    path.write_bytes(data)
    return path


def test_one_key_leaves_the_tenant_to_the_body() -> None:
    keys = ApiKeys.one("secret")
    assert keys.find(b"secret") == (True, None)
    assert keys.find(b"secre") == (False, None)


def test_each_line_of_a_file_is_a_tenant_and_a_key(tmp_path: Path) -> None:
    keys = ApiKeys.of_file(file_of(tmp_path, b"# who  key\n\nacme  k1\n  acme\tk2\nzeta k3\n"))
    assert [keys.find(key) for key in (b"k1", b"k2", b"k3")] == [(True, "acme"), (True, "acme"), (True, "zeta")]
    assert keys.find(b"acme") == (False, None)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "has no key"),
        (b"acme\n", "line 1: write 'TENANT KEY'"),
        (b"a s3cret\nb c d\n", "line 2: write 'TENANT KEY'"),
        (b"a s3cret\nb s3cret\n", "line 2: this key is there twice"),
        (b"x" * 300 + b" s3cret\n", "line 1: a tenant has at most"),
        (b"\xff\xfe", "not UTF-8"),
        (b"#" * (MAX_FILE_BYTES + 1), "is larger than"),
    ],
    ids=["empty", "one-word", "three-words", "twice", "long", "binary", "huge"],
)
def test_a_file_that_makes_no_sense_is_refused_with_its_line_and_no_key(tmp_path: Path, data: bytes, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ApiKeys.of_file(file_of(tmp_path, data))
    assert says in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Cannot read the API keys file .*nowhere"):
        ApiKeys.of_file(tmp_path / "nowhere")


def test_an_empty_key_would_let_everybody_in() -> None:
    with pytest.raises(ConfigError, match="empty"):
        ApiKeys.one(" ")
