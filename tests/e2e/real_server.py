"""A whole server on a real model, in processes of its own, and what a test asks it.

What a test needs to know about scheduling it reads from the server's own event log, found by request id.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TypeVar

import httpx
import openai
from prometheus_client.parser import text_string_to_metric_families

from evenflow.core.events import Event, Finished
from evenflow.models.source import resolve_model
from evenflow.observe.log import read_log
from evenflow.replay.server_process import ServerProcess, server_process

MODEL = "small"
PATIENCE_SECONDS = 120.0
FRANCE = "The capital of France is"
SEATS = 16
BUDGET = 64

REAL = ("--dtype", "fp32", "--kv-memory", "512MiB", "--max-model-len", "4096")
NARROW = ("--max-num-seqs", str(SEATS), "--max-num-batched-tokens", str(BUDGET))
SHADOW = ("--executor", "shadow")

EventT = TypeVar("EventT", bound=Event)


@dataclass(frozen=True, slots=True)
class RealServer:
    process: ServerProcess
    url: str
    log: Path
    client: openai.OpenAI

    def async_client(self) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE_SECONDS)

    def complete(self, prompt: str, **fields: object) -> str:
        """Greedy, unless `fields` say otherwise."""
        body = {"model": MODEL, "prompt": prompt, "temperature": 0, **fields}
        answer = httpx.post(f"{self.url}/v1/completions", json=body, timeout=PATIENCE_SECONDS)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["choices"][0]["text"])

    def token_ids(self, text: str) -> list[int]:
        return list(httpx.post(f"{self.url}/tokenize", json={"prompt": text}).json()["tokens"])

    def gauge(self, name: str) -> float:
        """The sum over all labels; counters too."""
        text = httpx.get(f"{self.url}/metrics", timeout=PATIENCE_SECONDS).text
        families = {family.name: family for family in text_string_to_metric_families(text)}
        return sum(sample.value for sample in families[name].samples)

    def events(self, kind: type[EventT]) -> list[EventT]:
        """As far as the log is written; it is whenever nobody is being served."""
        with read_log(self.log) as events:
            return [event for event in events if isinstance(event, kind)]

    def finished(self, request_id: str) -> Finished | None:
        return next((event for event in self.events(Finished) if event.request_id == request_id), None)

    def until(self, condition: Callable[[], object]) -> None:
        """Ask again after every answer of the server's, for as long as patience lasts."""
        deadline = monotonic() + PATIENCE_SECONDS
        while not condition():
            assert monotonic() < deadline, "it never came true"
            httpx.get(f"{self.url}/health", timeout=PATIENCE_SECONDS)


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[RealServer]:
    log = folder / "events.jsonl"
    model = ["--model", str(resolve_model("smollm2-135m")), "--served-model-name", MODEL]
    with server_process([*model, "--port", "0", "--event-log", str(log), *arguments]) as process:
        url = process.url()
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=PATIENCE_SECONDS) as client:
            yield RealServer(process, url, log, client)


def children_of(pid: int) -> list[int]:
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # gone meanwhile
            # The name, in parentheses, may hold anything; the parent is the second field after it.
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                children.append(int(stat.parent.name))
    return children
