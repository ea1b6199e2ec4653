"""What the front adds to the time to first token, on an idle server.

    client        |---- TTFT as the client sees it: last byte sent ... first event read ----|
    engine           |---- TTFT in the event log: body received ... step ended ----|
    front         |--|                                                             |--------|   the difference

One request at a time, over one connection that stays open, to a real server process; requests are matched to the event
log by their id. Both processes read the same monotonic clock, but only differences within one of them are used.
"""

import http.client
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from evenflow.core.errors import EngineUnavailable
from evenflow.observe.fold import spans_of
from evenflow.observe.log import read_log
from evenflow.observe.tails import tail_of
from evenflow.replay.server_process import server_process

WARM_UP_REQUESTS = 5
_MAX_TOKENS = 4
_READ_SECONDS = 120.0
_NAME = "front-bench"


@dataclass(frozen=True, slots=True)
class FrontCost:
    """Milliseconds. A percentile is None where the sample is too small to carry it (observe/tails.py)."""

    requests: int
    prompt_tokens: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    max_ms: float
    client_ttft_p50_ms: float | None
    engine_ttft_p50_ms: float | None


def measure(model: Path, prompts: Sequence[tuple[int, ...]], *, serve_arguments: Sequence[str] = ()) -> FrontCost:
    """The first WARM_UP_REQUESTS of `prompts` are not counted. All should be of one length, and different, so that the
    prefix cache has nothing to give."""
    with tempfile.TemporaryDirectory(prefix="evenflow-bench-") as folder:
        log = Path(folder) / "events.jsonl"
        arguments = ["--model", str(model), "--served-model-name", _NAME, "--port", "0", "--event-log", str(log)]
        with server_process([*arguments, *serve_arguments]) as server:
            client = _client_ttfts(server.url(), prompts)
        with read_log(log) as events:
            engine = {str(span.request_id): span.ttft_seconds for span in spans_of(events)}
    counted = {name: ttft for name, ttft in client.items() if int(name) >= WARM_UP_REQUESTS}
    return front_cost(counted, {name: engine[f"cmpl-{name}"] for name in counted}, len(prompts[0]))


def front_cost(client: Mapping[str, float], engine: Mapping[str, float | None], prompt_tokens: int) -> FrontCost:
    """Of both times to first token, in seconds, by request."""
    pairs = [(seconds, engine[name]) for name, seconds in client.items()]
    both = [(theirs, ours) for theirs, ours in pairs if ours is not None]
    assert len(both) == len(pairs), "a request that the client saw answered has a first token"
    added = [theirs - ours for theirs, ours in both]
    p50, p95, p99 = map(_milliseconds, tail_of(added).percentiles)
    return FrontCost(
        requests=len(added),
        prompt_tokens=prompt_tokens,
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        max_ms=round(max(added) * 1e3, 3),
        client_ttft_p50_ms=_milliseconds(tail_of([theirs for theirs, _ in both]).p50),
        engine_ttft_p50_ms=_milliseconds(tail_of([ours for _, ours in both]).p50),
    )


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 3)


def _client_ttfts(url: str, prompts: Sequence[tuple[int, ...]]) -> dict[str, float]:
    address = urlsplit(url)
    assert address.hostname is not None
    with closing(http.client.HTTPConnection(address.hostname, address.port, timeout=_READ_SECONDS)) as connection:
        connection.connect()
        return {str(index): _ttft(connection, str(index), prompt) for index, prompt in enumerate(prompts)}


def _ttft(connection: http.client.HTTPConnection, request_id: str, prompt: tuple[int, ...]) -> float:
    sampling = {"max_tokens": _MAX_TOKENS, "temperature": 0, "ignore_eos": True, "stream": True}
    body = json.dumps({"model": _NAME, "prompt": prompt, **sampling}).encode()
    headers = {"content-type": "application/json", "x-request-id": request_id}
    began = time.monotonic()
    connection.request("POST", "/v1/completions", body, headers)
    response = connection.getresponse()
    first = response.readline()
    seconds = time.monotonic() - began
    rest = response.read()
    if response.status != 200 or not first.startswith(b"data: "):
        raise EngineUnavailable(f"the server answered {response.status}: {(first + rest).decode()[:300]}")
    return seconds
