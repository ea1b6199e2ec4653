"""The reference pages of metrics and events, and a Grafana dashboard, made from the code that they describe.

python -m evenflow.observe.reference docs/reference
"""

import inspect
import sys
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, get_args

from evenflow.core.events import SCHEMA_VERSION, Event
from evenflow.core.plan import Door, LeftOut, WaitReason
from evenflow.core.policy.preemption import PreemptionMode
from evenflow.core.request import FinishReason
from evenflow.observe.grafana import dashboard
from evenflow.observe.lines import READABLE_VERSIONS
from evenflow.observe.metric import Metric
from evenflow.observe.metrics import LABEL_NAMES
from evenflow.observe.metrics_table import METRICS
from evenflow.observe.waits import ITERATION, UNEXPLAINED

_MADE_BY = "<!-- Made by `python -m evenflow.observe.reference docs/reference`; change the code, not this page. -->"

_MOVED_BY = {
    "state": "Read when Prometheus asks",
    "step": "Changed by `StepRecord`",
    "preempted": "Changed by `Preempted`",
    "rejected": "Changed by `Rejected`",
    "admitted": "Changed when a request gets its first seat (`Scheduled`)",
    "first_token": "Changed when a request has its first token (the `StepRecord` after `FirstToken`)",
    "token_gap": "Changed for every token after a request's first (`StepRecord`)",
    "finished": "Changed when a request ends (`Finished`)",
    "completed": "Changed when a request ends by itself (`Finished` with `stop` or `length`)",
    "front": "Changed by the HTTP front",
    "lost": "Changed by the HTTP front when the engine dies",
}


def metrics_page() -> str:
    lines = [
        "# Metrics",
        "",
        _MADE_BY,
        "",
        "`GET /metrics` gives these series. Names, labels and buckets under `vllm:` are those that dashboards made for",
        "vLLM expect; what evenflow adds is under `evenflow:`. Every series has the labels",
        " and ".join(f"`{name}`" for name in LABEL_NAMES) + ".",
        "Each is a fold over the [events](events.md): feeding a recorded log gives the same numbers, except of those",
        "that the HTTP front changes, and of `evenflow:engine_up`, which only it knows.",
        "",
        "[grafana.json](grafana.json) is a Grafana dashboard of them. Its first row draws a vLLM server too.",
    ]
    for group, moved_by in _MOVED_BY.items():
        rows: tuple[Metric[Any], ...] = getattr(METRICS, group)  # Any: the page does not care what moves a row
        lines += ["", f"## {moved_by}", "", *_table(("name", "kind", "meaning"), map(_metric_row, rows))]
    lines += ["", "## Buckets", "", "Upper bounds, inclusive; `+Inf` follows.", ""]
    lines += _table(("bounds", "histograms"), _bucket_rows())
    return "\n".join(lines) + "\n"


def _metric_row(metric: Metric[Any]) -> tuple[str, ...]:  # Any: as above
    label = f" Label `{metric.label}`: {_codes(metric.label_values)}." if metric.label is not None else ""
    return f"`{metric.name}`", metric.kind.value, metric.help + label


def _bucket_rows() -> Iterator[tuple[str, ...]]:
    names: dict[tuple[float, ...], list[str]] = {}
    for group in METRICS:
        for metric in group:
            if metric.buckets:
                names.setdefault(metric.buckets, []).append(metric.name)
    for bounds, histograms in names.items():
        yield " ".join(f"{bound:g}" for bound in bounds), _codes(histograms)


def events_page() -> str:
    lines = [
        "# Events",
        "",
        _MADE_BY,
        "",
        f"The event log is a file of JSON lines, schema version {SCHEMA_VERSION}. Its first line is",
        f'`{{"type":"Log","schema_version":{SCHEMA_VERSION},"part":1,"settings":{{...}}}}`; every further line is one',
        'event, `{"type":"StepRecord",...}`, with the fields below. All times are seconds on one monotonic clock per',
        "log. A field that is missing, unknown or of another type is an error.",
        "",
        "The schema version is a number that rises whenever a field or an event is added, removed, or comes to mean",
        "something else. This evenflow reads "
        + " and ".join(map(str, READABLE_VERSIONS))
        + ", and refuses every other",
        "with a sentence that names both.",
        "",
        "With `--event-log-max-size` a full file `run.jsonl` is renamed to `run.jsonl.1`, the next to `run.jsonl.2`,",
        "and so on; `run.jsonl` is always the one being written, and the last `--event-log-keep` full ones stay. Each",
        "part is a log with a header of its own: `part` is its number, `settings` are those in force when it began.",
        "Neither a line nor a step is split between parts. Whatever reads `run.jsonl` reads its parts first, in order;",
        "one that is missing in between is an error.",
        "",
        "A `StepRecord` line leaves out `scheduled` if it is that of the last `StepRecord` line before it in the same",
        "file (as it is while a batch only decodes), `emitted` if every request in `scheduled` got one token, in that",
        "order, and `left_out` and `doors` if they are empty. `evenflow log F --to F.csv` writes everything out.",
        "",
        "The events of one step come in this order: `Preempted` and `Scheduled` (at its start), `FirstToken` and",
        "`Finished` (at its end), `StepRecord`.",
        "",
        "A client may use a request id again once its request is over (a trace that is replayed twice to one server",
        "does). Each `Arrived` begins another life: `explain` tells the last one, and whatever reads a log as a load",
        "calls the second `ID#2`.",
    ]
    for event_class in get_args(Event):
        lines += ["", f"## {event_class.__name__}", "", *_doc(event_class)]
        kinds = event_class.__annotations__
        lines += _table(("field", "type"), ((f"`{name}`", f"`{_type(kind)}`") for name, kind in kinds.items()))
    lines += ["", "## Values", ""]
    lines += _table(
        ("type", "values"),
        [
            (f"`{FinishReason.__name__}`", _codes(reason.value for reason in FinishReason)),
            (f"`{WaitReason.__name__}`", _codes(reason.value for reason in WaitReason)),
            (f"`{PreemptionMode.__name__}`", _codes(mode.value for mode in PreemptionMode)),
            *((f"`{cls.__name__}`", f"array of {_codes(cls.__annotations__)}") for cls in (Door, LeftOut)),
        ],
    )
    lines += [
        "",
        f"Folds add two reasons to those of `WaitReason`: `{ITERATION}` (no step has decided about the request yet: it",
        f"waits for the one under way) and `{UNEXPLAINED}` (the log does not say; a gap in the log, never expected).",
    ]
    return "\n".join(lines) + "\n"


def _doc(event_class: type) -> list[str]:
    doc = inspect.cleandoc(event_class.__doc__ or "")
    # A NamedTuple says its signature where there is no docstring.
    return [] if doc.startswith(f"{event_class.__name__}(") else [*doc.splitlines(), ""]


def _type(annotation: object) -> str:
    annotation = getattr(annotation, "__supertype__", annotation)  # of a NewType
    if isinstance(annotation, type) and not get_args(annotation):
        return "string" if annotation is str else annotation.__name__
    arguments = [argument for argument in get_args(annotation) if argument is not Ellipsis]
    if arguments and Ellipsis in get_args(annotation):
        return f"array of {_type(arguments[0])}"
    if arguments:
        return f"[{', '.join(_type(argument) for argument in arguments)}]"
    return getattr(annotation, "__name__", str(annotation))


def _codes(names: Iterable[str | Enum]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


PAGES = {"metrics.md": metrics_page, "events.md": events_page, "grafana.json": dashboard}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
