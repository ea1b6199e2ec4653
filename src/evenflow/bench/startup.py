"""How long a user waits: from the command to the first served token, and what the two processes then hold in memory.

    command |---- front and engine start, the model is loaded ----| ready |-- one streamed request --| first token
            ready_seconds                                          first_token_seconds (from the command, too)

The model is on disk, and its file in the page cache where memory allows: a run before the first is not counted.
"""

import http.client
import json
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from evenflow.core.errors import EngineUnavailable
from evenflow.engine.memory import resident_memory
from evenflow.replay.server_process import server_process

_NAME = "startup-bench"
_PROMPT = list(range(1, 17))
_READ_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds since the command; bytes after the first token, None where the system does not tell."""

    ready_seconds: float
    first_token_seconds: float
    front_bytes: int | None
    engine_bytes: int | None


@dataclass(frozen=True, slots=True)
class StartUp:
    ready_seconds: float
    first_token_seconds: float
    starts: tuple[Start, ...]


def measure(
    model: Path,
    *,
    runs: int,
    serve_arguments: Sequence[str] = (),
    progress: Callable[[str], None] = lambda what: None,
) -> StartUp:
    """Medians of `runs` starts."""
    arguments = ["--model", str(model), "--served-model-name", _NAME, "--port", "0", *serve_arguments]
    starts = []
    for index in range(runs + 1):
        progress(f"start {index} of {runs}" if index else "a start that is not counted")
        starts.append(_start(arguments))
    counted = tuple(starts[1:])
    return StartUp(
        ready_seconds=statistics.median(start.ready_seconds for start in counted),
        first_token_seconds=statistics.median(start.first_token_seconds for start in counted),
        starts=counted,
    )


def _start(arguments: Sequence[str]) -> Start:
    began = time.monotonic()
    with server_process(arguments) as server:
        url = server.url()
        ready = time.monotonic()
        _read_first_token(url)
        first = time.monotonic()
        return Start(ready - began, first - began, resident_memory(server.pid), _child_memory(server.pid))


def _read_first_token(url: str) -> None:
    address = urlsplit(url)
    assert address.hostname is not None
    body = json.dumps({"model": _NAME, "prompt": _PROMPT, "max_tokens": 2, "temperature": 0, "stream": True})
    with closing(http.client.HTTPConnection(address.hostname, address.port, timeout=_READ_SECONDS)) as connection:
        connection.request("POST", "/v1/completions", body.encode(), {"content-type": "application/json"})
        response = connection.getresponse()
        line = response.readline()
        if response.status != 200 or not line.startswith(b"data: "):
            raise EngineUnavailable(f"the server answered {response.status}: {line.decode()[:300]}")


def _child_memory(pid: int, proc: Path = Path("/proc")) -> int | None:
    """Of the process that the server started: the engine."""
    try:
        children = (proc / str(pid) / "task" / str(pid) / "children").read_text().split()
    except OSError:
        return None
    return resident_memory(int(children[0])) if children else None
