"""Groups of a server that never ends: which requests are where, in which window, and that the parts add up."""

from collections import defaultdict
from collections.abc import Iterable
from random import Random

import pytest

from evenflow.core.errors import ConfigError
from evenflow.core.events import Event
from evenflow.core.request import FinishReason
from evenflow.observe.fold import spans_of
from evenflow.observe.group_tails import MAX_NAMES, OTHERS, GroupTails
from evenflow.observe.length_groups import LengthGroups
from evenflow.observe.sketch import Sketch
from evenflow.observe.spans import RequestSpan
from evenflow.observe.tally import TTFT_PARTS
from recording import busy_runs, flat
from simulated import Server, abort, ask, simulate
from story import alone, arrived, finished, first_token, scheduled, step


def named(view: str, tails: GroupTails, window: str = "start") -> dict[str, int]:
    return {row.name: row.num_requests for row in tails.rows(window) if row.view == view}


def life(name: str, at: float, *, tenant: str = "", prompt: int = 8) -> list[Event]:
    came = arrived(name, at, prompt=prompt)._replace(tenant=tenant)
    return [
        came,
        scheduled(name, 1, at),
        first_token(name, 1, at + 1.0),
        finished(name, 1, at + 1.0),
        step(1, at, at + 1.0, emitted=name, running=0),
    ]


def one_by_one(spans: Iterable[RequestSpan], groups: LengthGroups) -> dict[tuple[str, str], dict[str, Sketch]]:
    """Since the start, the long way: every number of every request on its own."""
    found: defaultdict[tuple[str, str], defaultdict[str, Sketch]] = defaultdict(lambda: defaultdict(Sketch))
    for span in spans:
        lengths = groups.name_of(span.num_prompt_tokens, span.num_output_tokens)
        for key in ("all", ""), ("lengths", lengths), ("class", span.service_class), ("tenant", span.tenant):
            sketches = found[key]
            sketches["request"].add(0.0)
            for name, seconds in (("queue", span.queue_seconds), ("ttft", span.ttft_seconds)):
                if seconds is not None:
                    sketches[name].add(seconds)
            if span.completed:
                for name, seconds in (("e2e", span.e2e_seconds), ("tpot", span.tpot_seconds)):
                    if seconds is not None:
                        sketches[name].add(seconds)
            own = Sketch()
            own.add_many(span.itl_seconds)
            if own.num_observations:
                own.total = span.token_times[-1] - span.token_times[0]
                sketches["itl"].merge(own)
            if span.ttft_parts is not None:
                for part in TTFT_PARTS:
                    read = getattr(span.ttft_parts, part)
                    sketches[f"part {part}"].add(sum(read.values()) if part == "queue" else read)
                for reason, seconds in span.ttft_parts.queue.items():
                    sketches[f"reason {reason}"].add(seconds)
    return {key: dict(sketches) for key, sketches in found.items()}


def numbers(sketch: Sketch) -> tuple[dict[int, int], int, float, float]:
    return dict(sketch.counts), sketch.num_observations, sketch.total, sketch.largest


@pytest.mark.parametrize("looks_every", [1, 40, 10**9])
def test_tails_are_what_counting_one_request_after_the_other_gives_to_the_last_bit(looks_every: int) -> None:
    rng = Random(5)
    load = [
        ask(f"r{i}", rng.random() * 40, rng.randint(4, 300), rng.randint(1, 60), tenant=f"t{i % 3}", received=0.0)
        for i in range(90)
    ]
    events = simulate(Server(seats=12, budget=128, blocks=200), [*load, *(abort(f"r{i}", 20.0) for i in range(9))])
    tails, groups = GroupTails(), LengthGroups()
    for index, event in enumerate(events):
        tails.feed([event])
        if index % looks_every == 0:
            tails.rows()
    expected = one_by_one(spans_of(events), groups)
    rows = {(row.view, row.name): row for row in tails.rows()}
    assert rows.keys() == expected.keys()
    assert sum(row.num_requests for row in rows.values()) == 4 * 90
    assert any(row.num_requests > 2 for key, row in rows.items() if key[0] == "lengths")
    for key, row in rows.items():
        sketches = expected[key]
        assert row.num_requests == sketches["request"].num_observations
        for name, sketch in row.latencies.items():
            assert numbers(sketch) == numbers(sketches.get(name, Sketch()))
        n = sketches["part queue"].num_observations if "part queue" in sketches else 1
        assert row.ttft_parts == {p: sketches[f"part {p}"].total / n for p in TTFT_PARTS if f"part {p}" in sketches}
        reasons = {k.removeprefix("reason "): s.total / n for k, s in sketches.items() if k.startswith("reason ")}
        assert row.queue_reasons == reasons


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
