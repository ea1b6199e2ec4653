"""`evenflow explain`: where one request's time went, from an event log."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from evenflow.core.errors import ConfigError, EvenflowError
from evenflow.core.events import Arrived, Rejected, StepRecord
from evenflow.files.whole_file import write_whole
from evenflow.observe.log import read_log
from evenflow.observe.story import Story, StoryTeller, engine_ids
from evenflow.observe.story_svg import render_svg
from evenflow.observe.story_text import render_text
from evenflow.observe.visible import visible

_IDS_NAMED = 5


class UnknownRequest(EvenflowError):
    """No request of this id is in the log."""


def explain(request_id: str, /, *, log: Annotated[Path, Parameter(name="--log")], svg: Path | None = None) -> None:
    """Tell one request's life step by step: when it waited and for what, behind whom, and with whom it computed.

    Parameters
    ----------
    request_id
        The id as in the log, or what a client got as its x-request-id.
    log
        An event log, as `evenflow serve --event-log FILE` writes it; .gz too.
    svg
        Also draw the timeline into this file.
    """
    story = _find(request_id, log)
    print(visible(render_text(story)), end="")
    if svg is not None:
        try:
            write_whole(svg, render_svg(story).encode())
        except OSError as error:
            raise ConfigError(f"cannot write the timeline {svg}: {error.strerror}") from error
        print(visible(f"\ntimeline: {svg}"))


def _find(request_id: str, log: Path) -> Story:
    tellers = [StoryTeller(name) for name in engine_ids(request_id)]
    seen: list[str] = []
    last = 0.0
    with read_log(log) as events:
        for event in events:
            for teller in tellers:
                teller.feed((event,))
            if isinstance(event, StepRecord):
                last = event.end
            elif isinstance(event, Arrived | Rejected) and len(seen) < _IDS_NAMED:
                seen.append(str(event.request_id))
    for teller in tellers:
        teller.close(last)
        if teller.story is not None:
            return teller.story
    known = f"; it has {', '.join(seen)} ..." if seen else "; it has no requests at all"
    raise UnknownRequest(f"{log} has no request {request_id!r}{known}")
