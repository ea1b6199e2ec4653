"""Values of an untrusted mapping (a JSON object, GGUF metadata), asked for by name and type.

A missing or mistyped value is one ModelError that names the file and the key.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from evenflow.core.errors import ModelError
from evenflow.files.bounded_file import read_at_most

T = TypeVar("T")


class Fields:
    """Read-only. JSON `null` counts as absent, as transformers writes it."""

    def __init__(self, source: str, values: Mapping[str, object]) -> None:
        self.source = source
        self._values = values

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def raw(self, key: str) -> object:
        """The value whatever its type; None if absent."""
        return self._values.get(key)

    def is_null(self, key: str) -> bool:
        return key in self._values and self._values[key] is None

    def optional_integer(self, key: str) -> int | None:
        value = self._values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._mistyped(key, "a whole number")
        return value

    def integer(self, key: str) -> int:
        return self._required(key, self.optional_integer(key))

    def optional_number(self, key: str) -> float | None:
        value = self._values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self._mistyped(key, "a number")
        return float(value)

    def integer_or(self, key: str, default: int) -> int:
        value = self.optional_integer(key)
        return default if value is None else value

    def number(self, key: str) -> float:
        return self._required(key, self.optional_number(key))

    def number_or(self, key: str, default: float) -> float:
        value = self.optional_number(key)
        return default if value is None else value

    def optional_text(self, key: str) -> str | None:
        value = self._values.get(key)
        if value is not None and not isinstance(value, str):
            raise self._mistyped(key, "a string")
        return value

    def text(self, key: str) -> str:
        return self._required(key, self.optional_text(key))

    def optional_flag(self, key: str) -> bool | None:
        value = self._values.get(key)
        if value is not None and not isinstance(value, bool):
            raise self._mistyped(key, "true or false")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.optional_flag(key)
        return default if value is None else value

    def optional_list(self, key: str) -> Sequence[object] | None:
        value = self._values.get(key)
        if value is not None and not isinstance(value, list | tuple):
            raise self._mistyped(key, "a list")
        return value

    def texts(self, key: str) -> list[str] | None:
        values = self.optional_list(key)
        if values is None:
            return None
        if not all(isinstance(value, str) for value in values):
            raise self._mistyped(key, "a list of strings")
        return [value for value in values if isinstance(value, str)]

    def integers(self, key: str) -> tuple[int, ...]:
        """One integer or a list of them; () if absent."""
        value = self._values.get(key)
        values = () if value is None else value if isinstance(value, list | tuple) else (value,)
        if not all(isinstance(item, int) and not isinstance(item, bool) for item in values):
            raise self._mistyped(key, "a whole number or a list of them")
        return tuple(item for item in values if isinstance(item, int))

    def optional_object(self, key: str) -> "Fields | None":
        value = self._values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._mistyped(key, "an object")
        return Fields(f"{self.source}: {key}", value)

    def error(self, message: str) -> ModelError:
        return ModelError(f"{self.source}: {message}")

    def _required(self, key: str, value: T | None) -> T:
        if value is None:
            raise self.error(f"'{key}' is missing.")
        return value

    def _mistyped(self, key: str, wanted: str) -> ModelError:
        return self.error(f"'{key}' must be {wanted}, not {_shown(self._values.get(key))}.")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def read_json_object(path: Path, *, max_bytes: int) -> Fields:
    """The JSON object in a file of at most `max_bytes`."""
    try:
        data = read_at_most(path, max_bytes)
        if data is None:
            raise ModelError(f"{path}: what it holds is more than the {max_bytes} bytes expected of such a file.")
        value = json.loads(data)
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file.") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not valid JSON: {error}.") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path}: must hold a JSON object, not {_shown(value)}.")
    return Fields(str(path), value)
