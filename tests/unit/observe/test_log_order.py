"""A log that tells of no run that ever was is refused, with the line and what is wrong there."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from evenflow.core.events import Event
from evenflow.core.request import FinishReason
from evenflow.observe.log import EventLogWriter, LogError, read_log
from evenflow.observe.log_order import LogOrder, OutOfOrder
from recording import busy_runs, flat
from story import alone, arrived, finished, first_token, preempted, scheduled, step


def check(events: Sequence[Event]) -> None:
    order = LogOrder()
    for event in events:
        order.check(event)


def test_what_an_engine_wrote_is_in_order_from_wherever_it_begins() -> None:
    for run in busy_runs(3):
        events = flat(run)
        for begin in range(0, len(events), 7):
            check(events[begin:])


def test_what_was_shuffled_is_not() -> None:
    rng = Random(1)
    for run in busy_runs(3):
        events = flat(run)
        rng.shuffle(events)
        with pytest.raises(OutOfOrder):
            check(events)


def read(path: Path) -> list[Event]:
    with read_log(path) as events:
        return list(events)


STEP = step(2, 4.0, 5.0, emitted="a")


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([STEP, step(2, 6.0, 7.0)], "field step: 2 comes after step 2"),
        ([STEP._replace(end=3.0)], "field end: 3 is before its start, 4"),
        ([STEP, step(3, 4.5, 6.0)], "field start: 4.5 is before the end of step 2, 5"),
        ([STEP, first_token("a", 3, 4.5)], "field time: 4.5 is before what was logged above, 5"),
        ([arrived("a", 3.0, accepted=2.0)], "field accepted_time: 2 is before its time, 3"),
        ([arrived("a", 0.0), arrived("a", 1.0)], "Arrived of 'a', which is waiting"),
        ([scheduled("a", 1, 0.0), arrived("a", 1.0)], "Arrived of 'a', which has a seat"),
        ([scheduled("a", 1, 0.0), scheduled("a", 2, 1.0)], "Scheduled of 'a', which has a seat"),
        ([arrived("a", 0.0), preempted("a", 1, 1.0)], "Preempted of 'a', which is waiting"),
        ([arrived("a", 0.0), first_token("a", 1, 1.0)], "FirstToken of 'a', which is waiting"),
        ([first_token("a", 1, 1.0)] * 2, "FirstToken of 'a', which has had its first token"),
        ([finished("a", 1, 1.0)] * 2, "Finished of 'a', which has ended"),
        ([finished("a", 1, 1.0), first_token("a", 1, 1.0)], "FirstToken of 'a', which has ended"),
    ],
)
def test_an_event_that_cannot_follow_those_before_it(events: list[Event], message: str) -> None:
    with pytest.raises(OutOfOrder) as caught:
        check(events)
    assert message in str(caught.value)


def test_a_name_may_be_used_again_once_its_request_has_ended() -> None:
    check([*alone(), arrived("a", 9.0), finished("a", 4, 9.5, reason=FinishReason.ABORT), arrived("a", 9.5)])


def test_the_reader_says_which_line_across_parts(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with EventLogWriter(path) as log:
        log.write([STEP])
    part = path.read_text()
    (tmp_path / "run.jsonl.1").write_text(part)
    path.write_text(part.replace('"part":1', '"part":2'))
    with (
        pytest.raises(LogError, match=r"run\.jsonl line 2: field step: 2 comes after step 2"),
        read_log(path) as events,
    ):
        list(events)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('"prefill_tokens":0', '"prefill_tokens":-1', "field prefill_tokens: Expected `int` >= 0"),
        ('"start":4.0', '"start":-4.0', "field start: Expected `float` >= 0"),
        ('"start":4.0', '"start":1e300', "field start: Expected `float` <= 1000000000000"),
        ('"step":2', '"step":99999999999999999999', "field step: Expected `int` <="),
        ('"scheduled":[["a",1]]', '"scheduled":[["a",-1]]', "Expected `int` >= 0"),
    ],
)
def test_a_number_that_no_engine_counts(tmp_path: Path, before: str, after: str, message: str) -> None:
    path = tmp_path / "run.jsonl"
    with EventLogWriter(path) as log:
        log.write([STEP])
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    with pytest.raises(LogError) as caught:
        read(path)
    assert "run.jsonl line 2" in str(caught.value)
    assert message in str(caught.value)
