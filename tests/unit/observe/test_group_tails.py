"""Groups of a server that never ends: which requests are where, in which window, and that the parts add up."""

from dataclasses import replace

import pytest

from evenflow.core.errors import ConfigError
from evenflow.core.events import Event
from evenflow.core.request import FinishReason
from evenflow.observe.group_tails import MAX_NAMES, OTHERS, GroupTails
from evenflow.observe.length_groups import LengthGroups
from recording import busy_runs, flat
from story import alone, arrived, finished, first_token, scheduled, step


def named(view: str, tails: GroupTails, window: str = "start") -> dict[str, int]:
    return {row.name: row.num_requests for row in tails.rows(window) if row.view == view}


def life(name: str, at: float, *, tenant: str = "", prompt: int = 8) -> list[Event]:
    came = replace(arrived(name, at, prompt=prompt), tenant=tenant)
    return [
        came,
        scheduled(name, 1, at),
        first_token(name, 1, at + 1.0),
        finished(name, 1, at + 1.0),
        step(1, at, at + 1.0, emitted=name, running=0),
    ]


def test_edges_are_the_last_length_inside_a_span() -> None:
    groups = LengthGroups((4, 8), (2,))
    assert groups.names == (
        "1-4 in, 1-2 out",
        "1-4 in, >2 out",
        "5-8 in, 1-2 out",
        "5-8 in, >2 out",
        ">8 in, 1-2 out",
        ">8 in, >2 out",
    )
    assert groups.name_of(4, 2) == "1-4 in, 1-2 out"
    assert groups.name_of(5, 3) == "5-8 in, >2 out"
    assert groups.name_of(9, 0) == ">8 in, 1-2 out"


@pytest.mark.parametrize("edges", [(), (0, 4), (4, 4), (8, 4)])
def test_edges_that_do_not_rise_are_refused(edges: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="input length edges"):
        LengthGroups(edges, (1,))


def test_a_request_is_in_all_and_in_one_group_of_each_view() -> None:
    tails = GroupTails(LengthGroups((8,), (2,)))
    tails.feed(alone())
    assert [(row.view, row.name, row.num_requests) for row in tails.rows()] == [
        ("all", "", 1),
        ("lengths", "1-8 in, >2 out", 1),
        ("class", "default", 1),
        ("tenant", "", 1),
    ]
    row = tails.rows()[0]
    assert row.latencies["ttft"].total == 3.0
    assert row.latencies["e2e"].total == 9.0
    assert row.latencies["itl"].num_observations == 2
    assert row.latencies["itl"].total == 6.0


def test_a_window_forgets_and_the_total_does_not() -> None:
    tails = GroupTails()
    tails.feed(life("a", 5.0))
    tails.feed(life("b", 100.0))
    assert named("all", tails, "1m") == {"": 1}
    assert named("all", tails, "5m") == {"": 2}
    assert [row.num_requests for row in tails.rows("5m", now=1000.0)] == []
    tails.feed(life("c", 1000.0))
    assert named("all", tails, "5m") == {"": 1}
    assert named("all", tails) == {"": 3}


def test_the_number_of_tenants_is_bounded_and_nobody_is_lost() -> None:
    tails = GroupTails()
    for index in range(MAX_NAMES + 20):
        tails.feed(life(f"r{index}", float(index), tenant=f"tenant {index}"))
    tenants = named("tenant", tails)
    assert len(tenants) == MAX_NAMES + 1
    assert tenants[OTHERS] == 20


def test_who_never_got_a_token_counts_as_a_request_without_latencies() -> None:
    tails = GroupTails()
    tails.feed([arrived("a", 0.0), finished("a", 0, 2.0, reason=FinishReason.ABORT, outputs=0)])
    row = tails.rows()[0]
    assert row.num_requests == 1
    assert row.latencies["ttft"].num_observations == row.latencies["e2e"].num_observations == 0
    assert tails.num_finished == {"abort": 1}


def test_parts_sum_to_ttft_and_reasons_to_the_queue_part() -> None:
    for run in busy_runs(3):
        tails = GroupTails()
        tails.feed(flat(run))
        for row in tails.rows():
            ttft = row.latencies["ttft"]
            if ttft.num_observations:
                assert sum(row.ttft_parts.values()) == pytest.approx(ttft.mean)
                assert sum(row.queue_reasons.values()) == pytest.approx(row.ttft_parts["queue"])
