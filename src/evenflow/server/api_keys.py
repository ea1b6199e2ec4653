"""Who may use the server, and whose work it then is.

One key for everybody, or a file with a key for each tenant, a line each, as in

    # tenant  key
    acme      9f2c4e...
    zeta      51d07b...

With a file the key says who the tenant is, and the field `user` of a body does not: fairness between tenants would mean
nothing if each could call itself what it likes.
"""

import hmac
from collections.abc import Iterator, Mapping
from pathlib import Path

from evenflow.core.errors import ConfigError
from evenflow.files.small_file import read_small_text

MAX_FILE_BYTES = 1 << 20
MAX_TENANT_CHARS = 256


class ApiKeys:
    """`tenants` maps keys to tenants; None is a tenant that the body may name."""

    def __init__(self, tenants: Mapping[str, str | None]) -> None:
        self._tenants = tuple((key.encode(), tenant) for key, tenant in tenants.items())

    @classmethod
    def one(cls, key: str) -> "ApiKeys":
        """Raises ConfigError for an empty key."""
        if not key.strip():
            raise ConfigError("The API key is empty; give a key, or none at all")
        return cls({key: None})

    @classmethod
    def of_file(cls, path: Path) -> "ApiKeys":
        """Raises ConfigError with the line that is wrong; no message ever has a key in it."""
        try:
            text = read_small_text(path, MAX_FILE_BYTES)
        except OSError as error:
            raise ConfigError(f"Cannot read the API keys file {path}: {error.strerror}") from error
        except UnicodeDecodeError:
            raise ConfigError(f"The API keys file {path} is not UTF-8 text") from None
        tenants: dict[str, str | None] = {}
        for number, tenant, key in _lines(text, path):
            if key in tenants:
                raise ConfigError(f"{path}, line {number}: this key is there twice; give each tenant keys of its own")
            tenants[key] = tenant
        if not tenants:
            raise ConfigError(f"The API keys file {path} has no key; write a line 'TENANT KEY' for each")
        return cls(tenants)

    def find(self, presented: bytes) -> tuple[bool, str | None]:
        """Whether it is a key, and its tenant. Takes equally long whichever key it is, or nearly is."""
        known, found = False, None
        for key, tenant in self._tenants:
            if hmac.compare_digest(presented, key):
                known, found = True, tenant
        return known, found


def _lines(text: str, path: Path) -> Iterator[tuple[int, str, str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2:
            raise ConfigError(f"{path}, line {number}: write 'TENANT KEY', two words, not {len(words)}")
        tenant, key = words
        if len(tenant) > MAX_TENANT_CHARS:
            raise ConfigError(f"{path}, line {number}: a tenant has at most {MAX_TENANT_CHARS} characters")
        yield number, tenant, key
