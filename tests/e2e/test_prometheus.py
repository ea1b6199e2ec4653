"""A real Prometheus scrapes a running server and answers every query of the Grafana dashboard with data."""

import json
import math
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import httpx
import pytest

from e2e.real_server import MODEL, PATIENCE_SECONDS, SHADOW, RealServer, serving
from evenflow.observe.grafana import SELECTOR, WINDOW, queries

PROMETHEUS = shutil.which("prometheus")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.model,
    pytest.mark.skipif(PROMETHEUS is None, reason="needs prometheus (Debian: apt-get install prometheus)"),
]
SCRAPES = 6

CONFIG = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: evenflow
    static_configs: [{{targets: ["{target}"]}}]
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[str]:
    assert PROMETHEUS is not None
    (folder / "prometheus.yml").write_text(CONFIG.format(target=target))
    address = f"127.0.0.1:{free_port()}"
    arguments = [
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    with (
        (folder / "prometheus.log").open("wb") as log,
        subprocess.Popen([PROMETHEUS, *arguments], stderr=log) as process,
    ):
        try:
            yield f"http://{address}"
        finally:
            process.terminate()


def values(url: str, query: str) -> list[float]:
    try:
        answer = httpx.get(f"{url}/api/v1/query", params={"query": query}, timeout=PATIENCE_SECONDS)
    except httpx.ConnectError:  # it is still starting
        return []
    if answer.status_code == 503:
        return []
    assert answer.status_code == 200, answer.text
    return [float(each["value"][1]) for each in answer.json()["data"]["result"]]


def serve_some(server: RealServer) -> None:
    """More at once than there are seats for, so that some wait."""
    with httpx.Client(timeout=PATIENCE_SECONDS) as client:
        prompts = [[1 + (number + place) % 50 for place in range(80)] for number in range(12)]
        body = {"model": MODEL, "prompt": prompts, "max_tokens": 60, "ignore_eos": True}
        assert client.post(f"{server.url}/v1/completions", json=body).status_code == 200


def test_every_query_of_the_dashboard_is_answered(tmp_path: Path) -> None:
    tight = ("--max-num-seqs", "8", "--max-num-batched-tokens", "64")
    with (
        serving(tmp_path, *SHADOW, *tight) as server,
        prometheus(tmp_path, server.url.removeprefix("http://")) as url,
    ):
        deadline = monotonic() + PATIENCE_SECONDS
        while sum(values(url, "count_over_time(vllm:num_requests_running[5m])")) < SCRAPES:
            assert monotonic() < deadline, (tmp_path / "prometheus.log").read_text()[-2000:]
            serve_some(server)
        unanswered = []
        for query in queries():
            asked = query.replace(SELECTOR, '{model_name=~".*"}').replace(WINDOW, "1m")
            found = values(url, asked)
            if not found or all(math.isnan(value) for value in found):
                unanswered.append(asked)
        assert unanswered == []
        assert max(values(url, "sum(rate(vllm:generation_tokens_total[1m]))")) > 0.0


def test_the_dashboard_file_has_the_queries_that_were_asked() -> None:
    file = Path(__file__).parents[2] / "docs" / "reference" / "grafana.json"
    targets = [t["expr"] for panel in json.loads(file.read_text())["panels"] for t in panel.get("targets", ())]
    assert targets == list(queries())
