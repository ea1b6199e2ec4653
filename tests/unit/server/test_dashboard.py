"""The dashboard's page and the steps it is fed with."""

import asyncio
import re

import httpx
import pytest
from starlette.applications import Starlette

from evenflow.core.errors import EvenflowError
from evenflow.core.events import Event
from evenflow.core.plan import WaitReason
from evenflow.server.app import answer_error
from evenflow.server.dashboard import DETAILED_STEPS, MAX_STEPS, Dashboard, summarise
from evenflow.server.observing import Observer
from story import alone, arrived, finished, first_token, preempted, scheduled, step


def ask(observer: Observer, path: str) -> httpx.Response:
    dashboard = Dashboard(observer.events_since, lambda: "ready", ["a", "b"])
    app = Starlette(routes=dashboard.routes(), exception_handlers={EvenflowError: answer_error})

    async def get() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            return await client.get(path)

    return asyncio.run(get())


def test_a_page_reads_on_from_where_it_was() -> None:
    observer = Observer()
    observer.feed(alone("a"))
    first = ask(observer, "/v1/steps").json()
    assert [each["step"] for each in first["steps"]] == [1, 2, 3]
    assert first["engine"] == "ready"
    assert ask(observer, f"/v1/steps?after={first['next']}").json()["steps"] == []
    observer.feed([step(4, 10.0, 11.0, emitted="b")])
    assert [each["step"] for each in ask(observer, f"/v1/steps?after={first['next']}").json()["steps"]] == [4]


@pytest.mark.parametrize("after", ["-1", "x", "1e3", "9" * 40, ""])
def test_a_place_that_no_answer_named_is_refused(after: str) -> None:
    assert ask(Observer(), f"/v1/steps?after={after}").status_code == 400


@pytest.mark.parametrize("path", ["/v1/steps?before=1", "/dashboard/presets?name=a"])
def test_a_parameter_that_would_do_nothing_is_refused(path: str) -> None:
    assert ask(Observer(), path).status_code == 400


def test_who_was_fed_is_told_apart_as_prefill_and_decode() -> None:
    events: list[Event] = [
        arrived("a", 0.0),
        scheduled("a", 1, 0.0),
        first_token("a", 1, 1.0),
        step(1, 0.0, 1.0, emitted="a", door=WaitReason.KV, left_out="c"),
        preempted("b", 2, 1.0),
        step(2, 1.0, 2.0, emitted="a"),
        finished("a", 2, 2.0),
    ]
    steps, others = summarise(events)
    assert [each["fed"] for each in steps] == [[("a", 1, "p")], [("a", 1, "d")]]
    assert steps[0]["left_out"] == ["c"]
    assert steps[0]["doors"] == {"kv": 1}
    assert [(each["type"], each["id"], each["step"]) for each in others] == [
        ("Arrived", "a", 1),
        ("Scheduled", "a", 1),
        ("Preempted", "b", 2),
        ("Finished", "a", 2),
    ]


def test_who_arrives_while_nothing_runs_has_not_waited_since_the_first_step() -> None:
    """A page asks for what is new: the arrivals may come before any step that says where they are."""
    observer = Observer()
    observer.feed(alone("a"))
    following = ask(observer, "/v1/steps").json()["next"]
    observer.feed([arrived("b", 10.0)])
    early = ask(observer, f"/v1/steps?after={following}").json()
    observer.feed([scheduled("b", 4, 10.0), step(4, 10.0, 11.0, emitted="b")])
    late = ask(observer, f"/v1/steps?after={following}").json()
    assert early["events"] == [{"type": "Arrived", "id": "b", "step": None}]
    assert [(each["type"], each["step"]) for each in late["events"]] == [("Arrived", 4), ("Scheduled", 4)]


def test_an_answer_has_a_bound_and_only_the_latest_steps_say_whom_they_fed() -> None:
    steps, _ = summarise([step(number, number, number + 1.0, emitted="a") for number in range(1000)])
    assert len(steps) == MAX_STEPS
    assert sum("fed" in each for each in steps) == DETAILED_STEPS
    assert "fed" in steps[-1]


def test_the_page_needs_nothing_from_elsewhere_and_may_run_nothing_else() -> None:
    answer = ask(Observer(), "/dashboard")
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert not re.findall(r"""(?:src|href)\s*=|@import|url\(|https?://""", answer.text)
    assert "innerHTML" not in answer.text, "ids come from clients"
    assert ask(Observer(), "/dashboard/presets").json() == ["a", "b"]
