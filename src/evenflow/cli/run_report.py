"""What became of a load run, once it is over: who finished, the latencies that the client saw, and what the steps did.

Only requests that were answered to the end count in the latencies. Percentiles that so few cannot carry are withheld.
"""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from evenflow.cli.palette import FAINT, LOOKS
from evenflow.cli.run_watch import Phase, RunWatch, StepFold
from evenflow.observe.summary import format_seconds
from evenflow.observe.tails import MIN_EXPECTED_ABOVE, PERCENTS, tail_of
from evenflow.replay.request import ObservedRequest

_WITHHELD = "-"


def report(watch: RunWatch) -> Iterator[RenderableType]:
    """In order, what to print."""
    complete = [request for request in watch.observed if request.complete]
    yield _ends(watch, complete)
    for request in watch.observed:
        if request.error is not None:
            yield Text(f"{request.plan.request_id} failed: {request.error}", LOOKS[Phase.FAILED].style)
    if complete:
        yield Text()
        yield _latencies(complete)
        yield Text(f"{_WITHHELD} withheld: fewer than {MIN_EXPECTED_ABOVE} observations would lie above it", FAINT)
    if watch.steps.tokens:
        yield Text()
        yield _steps(watch.steps)


def _ends(watch: RunWatch, complete: Sequence[ObservedRequest]) -> Text:
    counts = watch.counts()
    text = Text(f"{counts[Phase.DONE]} of {len(watch.observed)} requests finished", "bold")
    if complete:
        seconds = max(request.finished or 0.0 for request in complete) - min(request.intended for request in complete)
        tokens = sum(request.num_output_tokens or request.num_events for request in complete)
        text.append(f" in {format_seconds(seconds)}: {tokens:,} output tokens", "not bold")
    others = ((Phase.FAILED, "failed"), (Phase.CUT, "cut off"), (Phase.TO_COME, "never sent"))
    said = [f"{counts[phase]} {words}" for phase, words in others if counts[phase]]
    return text.append(f"\n{', '.join(said)}" if said else "", "not bold")


def _latencies(complete: Sequence[ObservedRequest]) -> Table:
    rows = (
        ("time to first token (TTFT)", [request.ttft for request in complete if request.ttft is not None]),
        ("between two tokens (ITL)", [gap for request in complete for gap in request.gaps]),
        ("whole answer (E2E)", [request.e2e for request in complete if request.e2e is not None]),
    )
    table = Table("seen by the client", "n", *(f"P{percent}" for percent in PERCENTS), "max", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, values in rows:
        tail = tail_of(values)
        shown = [_WITHHELD if value is None else format_seconds(value) for value in tail.percentiles]
        most = format_seconds(max(values)) if values else _WITHHELD
        table.add_row(name, str(tail.num_observations), *shown, most)
    return table


def _steps(steps: StepFold) -> Text:
    num, tail = len(steps.tokens), tail_of(steps.tokens)
    percentiles = (
        f"P{percent} {_WITHHELD if value is None else f'{value:.0f}'}"
        for percent, value in zip(PERCENTS, tail.percentiles, strict=True)
    )
    preemptions = "1 preemption" if steps.num_preemptions == 1 else f"{steps.num_preemptions} preemptions"
    return Text(
        f"{num:,} iterations: {steps.num_shared:,} ran several requests at once, "
        f"{steps.num_mixed:,} ran prefill beside decode\n"
        f"tokens per iteration: {', '.join(percentiles)}, max {max(steps.tokens)}; {preemptions}"
    )
