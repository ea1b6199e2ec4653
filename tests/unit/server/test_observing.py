"""What a running server says of itself, for events that are told by hand."""

import asyncio

import httpx
import pytest
from starlette.applications import Starlette

from evenflow.core.errors import EvenflowError
from evenflow.core.request import FinishReason
from evenflow.observe.fold import SpanFold
from evenflow.observe.metrics import Metrics
from evenflow.server.app import answer_error
from evenflow.server.observing import Observer
from recording import busy_runs
from story import alone, arrived, finished, first_token, scheduled, step


def ask(observer: Observer, path: str) -> httpx.Response:
    app = Starlette(routes=observer.routes(), exception_handlers={EvenflowError: answer_error})

    async def get() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            return await client.get(path)

    return asyncio.run(get())


@pytest.fixture
def observer() -> Observer:
    observer = Observer(now=lambda: 30.0)
    observer.feed(alone("cmpl-a"))
    return observer


def test_stats_has_every_window_with_parts_that_sum_to_ttft(observer: Observer) -> None:
    body = ask(observer, "/v1/stats").json()
    assert list(body["windows"]) == ["1m", "5m", "start"]
    row = body["windows"]["1m"][0]
    assert (row["by"], row["requests"]) == ("all", 1)
    assert row["ttft_seconds"]["n"] == 1
    assert row["ttft_seconds"]["p99"] is None, "one observation carries no P99"
    assert sum(row["ttft_parts_mean_seconds"].values()) == row["ttft_seconds"]["mean"] == 3.0
    assert body["finished"] == {"length": 1}
    assert body["engine"]["step"] == 3


def test_stats_are_a_page_of_text_too(observer: Observer) -> None:
    observer.feed([step(4, 30.0, 31.0, running=0)])
    answer = ask(observer, "/v1/stats?format=text&window=start")
    assert answer.headers["content-type"].startswith("text/plain")
    first, finished, _, head, every, *_ = answer.text.splitlines()
    assert first == "step 4: 0 running, 0 waiting, 0 of 8 KV blocks, at most 16 tokens"
    assert finished == "finished: 1 length"
    assert head.startswith("since the start ")
    assert head.split()[3:7] == ["n", "TTFT", "P50", "P95"]
    assert every.split()[:3] == ["all", "1", "-"], "one observation carries no percentile"
    assert len({len(line) for line in answer.text.splitlines()[3:8]}) == 1, "columns are in line"
    assert ask(observer, "/v1/stats?format=xml").status_code == 400


def test_stats_tell_the_engine_as_it_is_now_and_not_as_of_its_last_step() -> None:
    gone: list[bool] = []
    observer = Observer(engine_is_gone=lambda: bool(gone))

    def engine() -> tuple[int, int, int]:
        told = ask(observer, "/v1/stats").json()["engine"]
        return told["running"], told["waiting"], told["kv_blocks_used"]

    observer.feed([arrived("a", 0.0), arrived("b", 0.0), arrived("c", 0.0), scheduled("a", 1, 0.0)])
    observer.feed([scheduled("b", 1, 0.0), first_token("a", 1, 1.0), first_token("b", 1, 1.0)])
    observer.feed([step(1, 0.0, 1.0, emitted="ab", running=2, waiting=1)])
    assert engine() == (2, 1, 2)
    observer.feed([finished("c", 1, 1.5, reason=FinishReason.ABORT, outputs=0)])
    observer.feed([finished("a", 1, 1.5, reason=FinishReason.ABORT)])
    assert engine() == (1, 0, 2)
    gone.append(True)
    assert engine() == (0, 0, 0), "what a dead engine ran, nobody runs"
    gone.clear()
    observer.feed([finished("b", 1, 1.75, reason=FinishReason.ABORT)])
    assert engine() == (0, 0, 0)


def test_one_window_may_be_asked_for_and_an_unknown_one_is_refused(observer: Observer) -> None:
    assert list(ask(observer, "/v1/stats?window=5m").json()["windows"]) == ["5m"]
    refused = ask(observer, "/v1/stats?window=2m")
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "window"


@pytest.mark.parametrize("path", ["/v1/stats?by=x&window=5m", "/v1/requests/a?by=x", "/v1/requests/nobody?by=x"])
def test_a_parameter_that_would_do_nothing_is_refused(path: str, observer: Observer) -> None:
    refused = ask(observer, path)
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error["param"] == "by"
    assert error["message"].startswith(f"Unknown query parameter 'by'; {path.partition('?')[0]} takes ")


def test_a_parameter_that_is_given_twice_is_refused(observer: Observer) -> None:
    refused = ask(observer, "/v1/stats?window=1m&window=5m")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "window")


def test_a_server_without_a_step_has_stats_too() -> None:
    body = ask(Observer(), "/v1/stats").json()
    assert body["engine"] is None
    assert body["windows"]["start"] == []


@pytest.mark.parametrize("name", ["a", "cmpl-a"])
def test_a_request_is_found_by_the_clients_id_and_by_the_engines(observer: Observer, name: str) -> None:
    body = ask(observer, f"/v1/requests/{name}").json()
    assert body["id"] == "cmpl-a"
    assert body["complete"]
    assert body["ttft_seconds"] == 3.0
    assert sum(phase["seconds"] for phase in body["phases"]) == body["e2e_seconds"] == 9.0


def test_a_request_has_a_page_of_text_and_a_picture(observer: Observer) -> None:
    assert "finished (length)" in ask(observer, "/v1/requests/a?format=text").text
    picture = ask(observer, "/v1/requests/a?format=svg")
    assert picture.headers["content-type"] == "image/svg+xml"
    assert "default-src 'none'" in picture.headers["content-security-policy"]
    assert ask(observer, "/v1/requests/a?format=pdf").status_code == 400


def test_an_unknown_request_is_404_and_says_where_older_ones_are(observer: Observer) -> None:
    answer = ask(observer, "/v1/requests/nobody")
    assert answer.status_code == 404
    assert "--event-log" in answer.json()["error"]["message"]


def test_what_has_left_the_memory_is_forgotten() -> None:
    observer = Observer(events_kept=2)
    observer.feed(alone("a"))
    observer.feed([arrived("b", 20.0), arrived("c", 20.0)])
    assert ask(observer, "/v1/requests/a").status_code == 404
    assert ask(observer, "/v1/requests/c").status_code == 200


def test_who_looks_sees_what_was_not_folded_yet() -> None:
    spans = SpanFold()
    metrics = Metrics("m", spans=spans)
    observer = Observer(now=lambda: 30.0, spans=spans, metrics=metrics)
    events = tuple(alone("cmpl-a"))
    observer.feed(events)
    assert observer.events_since(0) == (list(events), len(events))
    observer.feed(alone("cmpl-b"))
    assert b'vllm:e2e_request_latency_seconds_count{engine="0",model_name="m"} 2.0' in metrics.render()[0]
    assert ask(observer, "/v1/stats").json()["finished"] == {"length": 2}
    observer.feed(alone("cmpl-c"))
    assert ask(observer, "/v1/requests/c").json()["complete"]


def test_one_fold_serves_prometheus_and_the_tails() -> None:
    """Both say what they would say with a fold of their own."""
    (run,) = busy_runs(1)
    spans = SpanFold()
    shared = Metrics("m", spans=spans)
    together = Observer(now=lambda: 1e6, spans=spans, metrics=shared)
    alone_metrics, alone_observer = Metrics("m"), Observer(now=lambda: 1e6)
    for batch in run:
        together.feed(batch)
        alone_metrics.feed(batch)
        alone_observer.feed(batch)
        assert shared.render() == alone_metrics.render()
    assert ask(together, "/v1/stats").json() == ask(alone_observer, "/v1/stats").json()
    assert ask(together, "/v1/stats").json()["finished"]
