"""Tails that the sample can carry, and the page about a run."""

import pytest

from evenflow.core.events import StepRecord
from evenflow.core.request import FinishReason
from evenflow.observe.fold import spans_of
from evenflow.observe.summary import format_seconds, format_summary, summarise, table
from evenflow.observe.tails import carries, tail_of
from recording import busy_runs, flat
from story import alone, finished


@pytest.mark.parametrize(("percent", "least"), [(50, 10), (95, 100), (99, 500)])
def test_a_percentile_needs_five_observations_expected_above_it(percent: int, least: int) -> None:
    assert not carries(least - 1, percent)
    assert carries(least, percent)


def test_percentiles_are_those_of_the_sample() -> None:
    tail = tail_of([float(i) for i in range(1, 1001)])
    assert tail.num_observations == 1000
    assert tail.percentiles == pytest.approx((500.5, 950.05, 990.01))


def test_what_the_sample_cannot_carry_is_withheld() -> None:
    assert tail_of([1.0] * 9).percentiles == (None, None, None)
    assert tail_of([1.0] * 99).percentiles == (1.0, None, None)
    assert tail_of([1.0] * 499).percentiles == (1.0, 1.0, None)
    assert tail_of([]).num_observations == 0


def test_observations_may_come_with_counts() -> None:
    assert tail_of([1.0, 9.0], [900, 100]) == tail_of([1.0] * 900 + [9.0] * 100)


def test_the_page_of_one_request_counts_its_tokens_and_time() -> None:
    summary = summarise(alone())
    counts = {row.name: row.tail.num_observations for row in summary.rows}
    assert counts == {
        "TTFT": 1,
        "ITL": 2,
        "TPOT": 1,
        "E2E": 1,
        "tokens per step": 3,
        "queue length": 3,
        "preemptions per request": 1,
    }
    assert (summary.num_steps, summary.num_output_tokens, summary.num_prompt_tokens) == (3, 3, 8)
    assert summary.num_finished == {"length": 1}
    assert summary.seconds == 9.0
    assert summary.output_tokens_per_second == pytest.approx(1 / 3)


def test_the_aborted_and_the_unfinished_have_a_ttft_but_no_e2e() -> None:
    events = list(alone())
    for cut in (events[:5], [*events[:5], finished("a", 2, 6.0, reason=FinishReason.ABORT, outputs=2)]):
        counts = {row.name: row.tail.num_observations for row in summarise(cut).rows}
        assert (counts["TTFT"], counts["E2E"], counts["TPOT"]) == (1, 0, 0)
    assert summarise(events[:5]).num_unfinished == 1


def test_the_page_agrees_with_the_spans_of_the_run() -> None:
    (run,) = busy_runs(1)
    events = flat(run)
    spans = [span for span in spans_of(events) if span.completed]
    summary = summarise(events)
    tails = {row.name: row.tail for row in summary.rows}
    assert tails["ITL"].p50 == tail_of([gap for span in spans_of(events) for gap in span.itl_seconds]).p50
    assert tails["E2E"] == tail_of([span.e2e_seconds for span in spans if span.e2e_seconds is not None])
    assert tails["queue length"] == tail_of([e.waiting for e in events if isinstance(e, StepRecord)])
    assert tails["TPOT"].num_observations + summary.num_without_tpot == len(spans) > 0


def test_a_table_shows_withheld_percentiles_with_the_number_of_observations() -> None:
    header, ttft, *_ = table(summarise(alone()).rows)
    assert header == ["", "n", "P50", "P95", "P99"]
    assert ttft == ["TTFT", "1", "withheld", "withheld", "withheld"]


def test_the_text_has_a_line_per_row_and_the_totals() -> None:
    lines = format_summary(summarise(alone())).splitlines()
    assert len(lines) == 9
    assert lines[1].split() == ["TTFT", "1", "withheld", "withheld", "withheld"]
    assert lines[-1] == (
        "finished: 1 length; unfinished: 0; steps: 3; preemptions: 0; prompt tokens: 8; output tokens: 3 (0.3333/s)"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.0000123, "12.3 us"),
        (0.0009996, "1 ms"),
        (0.00456, "4.56 ms"),
        (0.5, "500 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1 s"),
        (1.0, "1 s"),
        (99.96, "100 s"),
        (123.4, "123 s"),
    ],
)
def test_seconds_are_shown_in_the_unit_that_suits(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
