"""What is printed once a run is over."""

from collections.abc import Sequence
from io import StringIO
from pathlib import Path

from rich.console import Console

from evenflow.cli.run_report import report
from evenflow.cli.run_watch import RunWatch
from evenflow.replay.request import ObservedRequest
from story import arrived, scheduled, step
from unit.cli.crowd import cut, done, failed, planned

NO_LOG = Path("/nonexistent/events.jsonl")


def printed(watch: RunWatch) -> list[str]:
    screen = StringIO()
    console = Console(file=screen, width=80)
    for piece in report(watch):
        console.print(piece, highlight=False)
    return screen.getvalue().splitlines()


def of(requests: Sequence[ObservedRequest]) -> list[str]:
    return printed(RunWatch(requests, NO_LOG))


def test_only_what_finished_counts() -> None:
    lines = of([*[done(index) for index in range(10)], cut(10, tokens=3), cut(11), planned(12), failed(13)])
    assert lines[0] == "10 of 14 requests finished in 12.5 s: 40 output tokens"
    assert lines[1] == "1 failed, 2 cut off, 1 never sent"
    assert lines[2] == "demo-13 failed: HTTP 503: no"
    rows = {line.split("(")[1].split(")")[0]: line.split(")")[1].split() for line in lines if "(" in line}
    assert rows["TTFT"] == ["10", "500", "ms", "-", "-", "500", "ms"]
    assert rows["ITL"] == ["30", "1", "s", "-", "-", "1", "s"]
    assert rows["E2E"] == ["10", "3.5", "s", "-", "-", "3.5", "s"]
    assert lines[-1].startswith("- withheld: fewer than 5 observations")


def test_a_run_in_which_nothing_finished_has_no_latencies() -> None:
    assert of([cut(0), planned(1)]) == ["0 of 2 requests finished", "1 cut off, 1 never sent"]


def test_the_iterations_are_summed_up() -> None:
    watch = RunWatch([done(0)], NO_LOG)
    for event in (arrived("a", 0.0), arrived("b", 0.0), scheduled("a", 1, 0.0), step(1, 0.0, 1.0, emitted="a")):
        watch.steps.feed(event)
    watch.steps.feed(scheduled("b", 2, 1.0))
    for number in range(2, 12):
        watch.steps.feed(step(number, 0.0, 1.0, emitted="ab"))
    assert printed(watch)[-2:] == [
        "11 iterations: 10 ran several requests at once, 0 ran prefill beside decode",
        "tokens per iteration: P50 2, P95 -, P99 -, max 2; 0 preemptions",
    ]
