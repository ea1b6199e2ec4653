"""`evenflow log`: look into event logs, pick what is wanted, hand it to other tools."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from evenflow.core.errors import ConfigError
from evenflow.core.events import Event
from evenflow.observe.log import read_log
from evenflow.observe.log_digest import digest, format_digest
from evenflow.observe.log_export import FORMATS, export
from evenflow.observe.log_filter import LogFilter, step_range
from evenflow.observe.log_parts import parts_of
from evenflow.observe.visible import visible

Each = Annotated[tuple[str, ...], Parameter(negative=())]


def log(
    *files: Path,
    request: Each = (),
    event: Each = (),
    service_class: Annotated[str | None, Parameter(name="--class")] = None,
    tenant: str | None = None,
    since: float | None = None,
    until: float | None = None,
    steps: str | None = None,
    to: Path | None = None,
) -> None:
    """Show what event logs hold, or export what is asked for.

    Parameters
    ----------
    files
        Event logs, as `evenflow serve --event-log FILE` writes them; .gz too. Full parts (FILE.1, FILE.2, ...) are read
        with their FILE.
    request
        Only this request's events, and the steps of its life; may be given several times.
    event
        Only events of this kind, such as Preempted; may be given several times.
    service_class
        Only requests of this class, and the steps of their lives.
    tenant
        Only requests of this tenant, and the steps of their lives.
    since
        Only from so many seconds after the log's first event.
    until
        Only until so many seconds after the log's first event.
    steps
        Only steps of this range, such as 100:200, 100: or :200.
    to
        Write the events to this file, as .jsonl (a log again), .csv or .parquet.
    """
    if not files:
        raise ConfigError("log needs an event log, as `evenflow serve --event-log FILE` writes it")
    bounds = step_range(steps) if steps is not None else (None, None)
    wanted = LogFilter(request, event, service_class, tenant, since, until, bounds)
    if to is None:
        for number, path in enumerate(files):
            print("\n" * (number > 0) + visible(_show(path, wanted)))
        return
    _check_target(to, files)
    count = export(_selected(files, wanted), to)
    print(visible(f"{to}: {count:,} events"))


def _show(path: Path, wanted: LogFilter) -> str:
    with read_log(path) as events:
        found = digest(events, wanted)
        header = events.header
    settings = ", ".join(f"{name}={value}" for name, value in header.settings.items())
    lines = [f"{path}: schema version {header.schema_version}"]
    if header.part > 1:
        lines.append(f"begins with part {header.part}; the parts before it are gone")
    if settings:
        lines.append(f"settings: {settings}")
    return "\n".join([*lines, format_digest(found)])


def _check_target(to: Path, files: tuple[Path, ...]) -> None:
    if to.suffix not in FORMATS:
        raise ConfigError(f"--to is a file that ends in {', '.join(FORMATS)}, not {to}")
    if to.suffix == ".jsonl" and len(files) > 1:
        raise ConfigError("each log has a clock of its own, so a .jsonl file can hold only one; export them one by one")
    taken = {part.resolve() for path in files for part in (path, *(part for _, part in parts_of(path)))}
    if to.resolve() in taken:
        raise ConfigError(f"{to} is one of the logs to be read; export to another file")


def _selected(files: tuple[Path, ...], wanted: LogFilter) -> Iterator[tuple[str, Mapping[str, str], Iterator[Event]]]:
    for path in files:
        with ExitStack() as stack:
            events = stack.enter_context(read_log(path))
            yield str(path), events.header.settings, wanted.select(events)
