"""Files that somebody broke: each is read, or refused in a sentence, and nothing else ever comes of it."""

import io
import json
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenflow.core.errors import EvenflowError
from evenflow.observe.log import EventLogReader, EventLogWriter
from evenflow.observe.log_digest import digest, format_digest
from evenflow.observe.log_filter import LogFilter
from evenflow.replay.assess import assess
from evenflow.replay.load import LoadOptions, make_load
from evenflow.replay.result import read_result, write_result
from evenflow.simulate.catalogue import find_cost
from evenflow.simulate.cost_file import parse_cost, save_cost
from evenflow.workload.formats import parse_trace
from recording import busy_runs, flat
from records import record, result

Reader = Callable[[bytes], object]

# What a hand that breaks a file writes into it.
PIECES = st.sampled_from(
    [
        *(b"-1", b"0", b"1e999", b"1e308", b"nan", b"null", b"true", b'"x"', b"[]", b"{}", b"9" * 30, b"9" * 5000),
        *(b",", b'"', b"\n", b"\r\n", b"\0", b"\xff", b"\xef\xbb\xbf", b"\x1b[31m", b"[" * 3000, b'{"a":' * 3000),
    ]
)


@cache
def whole(name: str) -> bytes:
    """A file as evenflow writes it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        match name:
            case "log":
                with EventLogWriter(path) as log:
                    log.write(flat(busy_runs(1)[0])[:60])
            case "result":
                write_result(result(*(record(i, i * 0.5, tenant="t") for i in range(8))), {}, path)
            case "cost":
                save_cost(path, find_cost("h100-80gb-x8-llama2-70b"))
            case _:
                path.write_text("arrival_s,input_tokens,output_tokens\n" + "".join(f"{i},9,3\n" for i in range(9)))
        return path.read_bytes()


def read_log_of(data: bytes) -> object:
    return format_digest(digest(EventLogReader(io.BytesIO(data), "f"), LogFilter()))


def read_result_of(data: bytes) -> object:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "r.json"
        path.write_bytes(data)
        return assess(read_result(path))


def read_trace_of(data: bytes) -> object:
    return make_load(parse_trace(io.TextIOWrapper(io.BytesIO(data), "utf-8", newline=""), "f"), LoadOptions(), 4096)


def read_cost_of(data: bytes) -> object:
    return parse_cost(data, "f", force=True)


READERS: dict[str, Reader] = {
    "log": read_log_of,
    "result": read_result_of,
    "trace": read_trace_of,
    "cost": read_cost_of,
}


@pytest.mark.parametrize("name", READERS)
def test_a_whole_file_is_read(name: str) -> None:
    assert READERS[name](whole(name))


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_a_broken_file_is_read_or_refused(name: str, data: st.DataObject) -> None:
    content = whole(name)
    for _ in range(data.draw(st.integers(1, 3), "how often")):
        begin = data.draw(st.integers(0, len(content)), "from")
        end = min(len(content), begin + data.draw(st.integers(0, 12), "so many bytes"))
        content = content[:begin] + data.draw(st.one_of(st.just(b""), PIECES), "become") + content[end:]
    with suppress(EvenflowError):
        READERS[name](content)


NUMBERS = st.one_of(st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), st.none())


@pytest.mark.parametrize("name", ["log", "result", "cost"])
@given(data=st.data())
def test_another_number_is_read_or_refused(name: str, data: st.DataObject) -> None:
    """What a random byte hardly makes: the file is well formed, and a number in it is another."""
    lines = whole(name).splitlines() if name == "log" else [whole(name)]
    at = data.draw(st.integers(0, len(lines) - 1), "line")
    value = json.loads(lines[at])
    places = list(_places(value))
    container, key = data.draw(st.sampled_from(places), "place")
    container[key] = data.draw(NUMBERS, "becomes")  # type: ignore[index]
    lines[at] = json.dumps(value).encode()
    with suppress(EvenflowError):
        READERS[name](b"\n".join([*lines, b""]))


def _places(value: object) -> list[tuple[object, object]]:
    """Where numbers are in a JSON value."""
    items: list[tuple[object, object]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    found: list[tuple[object, object]] = []
    for key, each in items:
        if isinstance(each, int | float):
            found.append((value, key))
        else:
            found += _places(each)
    return found
