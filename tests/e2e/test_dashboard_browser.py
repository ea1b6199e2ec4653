"""The dashboard in a real browser: it loads without a complaint, moves with the load, and changes the policy."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import httpx
import pytest

pytest.importorskip("websockets", reason="needs websockets (the extra `dev`)")

from e2e.chromium import CHROMIUM, Page, page
from e2e.real_server import MODEL, PATIENCE_SECONDS, SHADOW, RealServer, children_of, serving
from evenflow.core.events import PolicyChanged, StepRecord

pytestmark = [
    pytest.mark.slow,
    pytest.mark.model,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium (Debian: apt-get install chromium)"),
]
ADMIN_KEY = "the-admin"
CHARTS = ("c-running", "c-waiting", "c-kv", "c-tokens", "timeline")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    tight = ("--max-num-seqs", "8", "--max-num-batched-tokens", "64", "--admin-key", ADMIN_KEY)
    with serving(tmp_path_factory.mktemp("server"), *SHADOW, *tight) as running:
        yield running


@pytest.fixture
def dashboard(server: RealServer, tmp_path: Path) -> Iterator[Page]:
    with page(tmp_path / "profile") as opened:
        opened.open(f"{server.url}/dashboard", before=f"sessionStorage.setItem('evenflow-admin-key', '{ADMIN_KEY}')")
        yield opened


@contextmanager
def load(server: RealServer) -> Iterator[None]:
    """More clients than there are seats, each with a request of another length, again and again."""
    enough = Event()

    def serve(client: int) -> None:
        prompt = [1 + (client + place) % 50 for place in range(20 + 40 * client)]
        body = {"model": MODEL, "prompt": prompt, "max_tokens": 40 + 30 * client, "ignore_eos": True}
        while not enough.is_set():
            answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=PATIENCE_SECONDS)
            assert answer.status_code == 200, answer.text

    with ThreadPoolExecutor(12) as pool:
        clients = [pool.submit(serve, client) for client in range(12)]
        try:
            yield
        finally:
            enough.set()
        for client in clients:
            client.result()


def pictures(dashboard: Page) -> list[str]:
    return [dashboard.run(f"document.getElementById('{name}').toDataURL()") for name in CHARTS]


def step_shown(dashboard: Page) -> str:
    return str(dashboard.run("document.getElementById('state').textContent"))


def test_the_charts_move_while_a_load_runs_and_nobody_complains(
    server: RealServer, dashboard: Page, tmp_path: Path
) -> None:
    dashboard.until("document.getElementById('state').textContent.startsWith('ready')")
    with load(server):
        dashboard.until("steps.length > 20 && Number(document.getElementById('running').textContent) > 0")
        before, seen = pictures(dashboard), step_shown(dashboard)
        dashboard.until(f"steps.length > 60 && document.getElementById('state').textContent !== {seen!r}")
        after = pictures(dashboard)
        light = dashboard.screenshot(tmp_path / "light.png")
        dashboard.look("dark")
        dashboard.run("draw()")
        dark = dashboard.screenshot(tmp_path / "dark.png")
    still = [name for name, old, new in zip(CHARTS, before, after, strict=True) if old == new]
    assert not {"c-tokens", "timeline"} & set(still)
    assert light != dark
    dashboard.until("document.getElementById('tails').textContent.includes('TTFT')")
    dashboard.until("document.getElementById('heat').rows.length > 1")
    assert dashboard.errors == []


def test_a_policy_changed_in_the_form_holds_in_the_next_steps(server: RealServer, dashboard: Page) -> None:
    dashboard.until("document.getElementById('settings').rows.length > 10")
    with load(server):
        dashboard.until("Number(document.getElementById('running').textContent) > 3")
        dashboard.run(
            "document.getElementById('setting').value = 'max_num_seqs=3';"
            "document.getElementById('policy').requestSubmit()"
        )
        dashboard.until("[...document.getElementById('settings').rows].some(r => r.textContent === 'max_num_seqs3')")
        dashboard.until("Number(document.getElementById('running').textContent) <= 3")
    events = [*server.events(PolicyChanged)]
    assert len(events) == 1
    assert dict(events[0].settings)["max_num_seqs"] == "3"
    later = [step for step in server.events(StepRecord) if step.step > events[0].step]
    assert later
    assert later[-1].num_scheduled <= 3
    assert dashboard.errors == []


def test_a_wrong_setting_is_answered_in_the_form(server: RealServer, dashboard: Page) -> None:
    dashboard.until("document.getElementById('settings').rows.length > 10")
    dashboard.run(
        "document.getElementById('setting').value = 'max_num_seqs=-1';document.getElementById('policy').requestSubmit()"
    )
    dashboard.until("document.getElementById('problem').textContent.includes('max_num_seqs')")
    assert server.events(PolicyChanged) == [] or dict(server.events(PolicyChanged)[-1].settings)["max_num_seqs"] != "-1"


@pytest.mark.parametrize("slip", ["max_num_seqs", "=3", "order=fcfs priority"])
def test_what_is_not_a_setting_is_said_and_nothing_is_sent(server: RealServer, dashboard: Page, slip: str) -> None:
    changes = len(server.events(PolicyChanged))
    dashboard.run(
        f"document.getElementById('setting').value = {slip!r};document.getElementById('policy').requestSubmit()"
    )
    dashboard.until("document.getElementById('problem').textContent.includes('name=value')")
    assert len(server.events(PolicyChanged)) == changes


def test_an_engine_that_is_dead_and_a_server_that_is_gone_are_said(tmp_path: Path) -> None:
    with serving(tmp_path, *SHADOW, "--admin-key", ADMIN_KEY) as server, page(tmp_path / "profile") as opened:
        opened.open(f"{server.url}/dashboard", before=f"sessionStorage.setItem('evenflow-admin-key', '{ADMIN_KEY}')")
        opened.until("document.getElementById('settings').rows.length > 10")
        (engine,) = children_of(server.process.pid)
        os.kill(engine, signal.SIGKILL)
        opened.until("document.getElementById('state').textContent.includes('the engine is dead')")
        server.process.ask_to_end()
        server.process.wait(PATIENCE_SECONDS)
        opened.run(
            "document.getElementById('setting').value = 'max_num_seqs=3';"
            "document.getElementById('policy').requestSubmit()"
        )
        opened.until("document.getElementById('problem').textContent.includes('does not answer')")


# Feeds the page what a server would say of many requests, each of three steps.
HISTORY = """(() => {
  for (let n = 1; n <= 10000; n += 200) {
    const answer = {events: [], steps: []};
    for (let i = n; i < n + 200; i++) {
      answer.events.push({type: "Arrived", id: "r" + i, step: i}, {type: "Scheduled", id: "r" + i, step: i});
      answer.events.push({type: "Finished", id: "r" + i, step: i + 2});
      const fed = [["r" + i, 8, "p"], ["r" + (i - 1), 1, "d"]];
      answer.steps.push({step: i, prefill: 8, decode: 2, budget: 64, running: 3, waiting: 1, kv_used: 5, kv_total: 9,
        preemptions: 0, doors: {}, fed, left_out: []});
    }
    learn(answer); draw();
  }
  const waiting = {events: [], steps: []};
  for (let i = 0; i < 10000; i++) waiting.events.push({type: "Arrived", id: "w" + i, step: 10001});
  const before = [requests.size, steps.length];
  learn(waiting);
  draw();
  return {finished: before[0], steps: before[1], all: requests.size};
})()"""


def test_ten_thousand_requests_of_history_are_not_all_kept(dashboard: Page) -> None:
    """What is drawn and kept has a bound, so a turn of the page costs the same after any time."""
    found = dashboard.run(HISTORY)
    assert found["steps"] == 400
    assert found["finished"] < 100
    assert found["all"] >= 10_000
    assert dashboard.errors == []


NEWCOMER = """(() => {
  learn({events: [], steps: [{step: 900000, prefill: 0, decode: 1, budget: 64, running: 1, waiting: 0, kv_used: 1,
    kv_total: 9, preemptions: 0, doors: {}, fed: [], left_out: []}]});
  learn({events: [{type: "Arrived", id: "newcomer", step: null}], steps: []});
  return requests.get("newcomer").start;
})()"""


def test_a_newcomer_waits_from_the_step_after_the_last_one_known(dashboard: Page) -> None:
    assert dashboard.run(NEWCOMER) == 900_001
    assert dashboard.errors == []
