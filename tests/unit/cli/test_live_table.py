"""The picture of a run: steady, as wide as the terminal, and with a colour for each thing a request does."""

from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from evenflow.cli.live_table import LiveTable, Places
from evenflow.cli.palette import LOOKS
from evenflow.cli.run_watch import Phase, RunWatch
from evenflow.replay.request import ObservedRequest
from unit.cli.crowd import cut, done, failed, planned, sent

NO_LOG = Path("/nonexistent/events.jsonl")


def phases_of(requests: Sequence[ObservedRequest]) -> dict[str, Phase]:
    watch = RunWatch(requests, NO_LOG)
    return {request.plan.request_id: watch.phase(request) for request in requests}


def numbers(shown: Sequence[ObservedRequest | None]) -> list[int | None]:
    return [None if request is None else int(request.plan.request_id[-2:]) for request in shown]


def drawn(requests: Sequence[ObservedRequest], width: int, height: int = 24) -> list[str]:
    screen = StringIO()
    console = Console(file=screen, width=width, height=height)
    console.print(LiveTable(RunWatch(requests, NO_LOG)))
    return screen.getvalue().splitlines()


def end(request: ObservedRequest, at: float) -> None:
    request.finished, request.finish_reason = at, "length"


def test_where_all_fit_they_are_in_order_of_arrival() -> None:
    requests = [done(0), sent(1), planned(2)]
    places = Places()
    assert numbers(places.give(requests, phases_of(requests), 3)) == [0, 1, None]
    requests[2].sent = 2.0
    assert numbers(places.give(requests, phases_of(requests), 3)) == [0, 1, 2]


def test_a_line_is_its_requests_until_it_is_done_and_another_needs_the_place() -> None:
    requests = [sent(0), sent(1), planned(2), planned(3), planned(4)]
    places = Places()

    def give() -> list[int | None]:
        return numbers(places.give(requests, phases_of(requests), 2))

    assert give() == [0, 1]
    end(requests[1], 5.0)
    end(requests[0], 6.0)
    assert give() == [0, 1]
    requests[2].sent = 7.0
    assert give() == [0, 2]  # who was done first makes room
    requests[3].sent = requests[4].sent = 8.0
    assert give() == [3, 2]  # the last must wait for a place
    end(requests[3], 9.0)
    assert give() == [4, 2]


def test_a_smaller_screen_has_fewer_places_and_a_larger_one_gives_them_back() -> None:
    requests = [sent(0), sent(1), sent(2)]
    places = Places()
    assert numbers(places.give(requests, phases_of(requests), 3)) == [0, 1, 2]
    assert numbers(places.give(requests, phases_of(requests), 2)) == [0, 1]
    assert numbers(places.give(requests, phases_of(requests), 3)) == [0, 1, 2]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (60, 20)])
def test_every_frame_fits_the_screen_and_has_the_same_lines(width: int, height: int) -> None:
    before = [planned(index, prompt=1021, output=54) for index in range(40)]
    after = [
        *[done(index, prompt=1021, output=54) for index in range(20)],
        *[sent(index, tokens=17, prompt=1021, output=54) for index in range(20, 36)],
        *(cut(36), cut(37, tokens=3), failed(38), sent(39)),
    ]
    first, last = drawn(before, width, height), drawn(after, width, height)
    assert len(first) == len(last) < height
    assert max(map(len, last)) < width


def test_at_80_columns_nothing_that_matters_is_cut_off() -> None:
    requests = [done(0), sent(1, tokens=17, prompt=1021, output=54), sent(2, output=999), failed(3), planned(39)]
    status, *_, heading, first, second, third, fourth, _, _ = drawn(requests, 80)
    assert " ".join(status.split()) == "○ 1 queued ◐ 0 prefill ● 1 decode ✓ 1 done · 1 to come ✗ 1 failed"
    assert heading.split() == ["request", "state", "prompt", "output", "TTFT"]
    assert first.split()[:4] == ["demo-00", "✓", "done", "10"]
    assert second.split()[:4] == ["demo-01", "●", "decode", "1021"]
    assert "17/54" in second
    assert second.endswith("500 ms")
    assert third.split()[:3] == ["demo-02", "○", "queued"]
    assert fourth.split()[:3] == ["demo-03", "✗", "failed"]


def test_who_has_no_line_is_counted() -> None:
    lines = drawn([sent(index) for index in range(40)], 80, 20)
    num_rows = sum("demo-" in line for line in lines)
    assert lines[-1].split()[:2] == ["and", str(40 - num_rows)]


def test_every_phase_has_a_sign_of_its_own_and_those_that_last_a_colour() -> None:
    assert len({look.sign for look in LOOKS.values()}) == len(Phase)
    lasting = (Phase.QUEUED, Phase.PREFILL, Phase.DECODE, Phase.CUT, Phase.FAILED)
    assert len({LOOKS[phase].style for phase in lasting}) == len(lasting)
