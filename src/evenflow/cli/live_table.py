"""What a load run looks like while it runs: a row per request, filling as its tokens come.

    request   prompt   output                          state      first token
    demo-07      142   ############............ 31/64  decode       210 ms

Requests that run are on top, then those that wait, then the last that finished, as many as the screen has lines for.
"""

import time
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from evenflow.observe.summary import format_seconds
from evenflow.replay.client import ObservedRequest

_STATES = {"decode": "green", "waiting": "yellow", "planned": "dim", "done": "cyan", "failed": "bold red"}
_ORDER = ("decode", "waiting", "failed", "done", "planned")


def state_of(request: ObservedRequest) -> str:
    if request.finished is not None:
        return "failed" if request.error is not None else "done"
    if request.chunk_times:
        return "decode"
    return "waiting" if request.sent is not None else "planned"


class LiveTable:
    """A rich renderable over requests that change under it. `max_rows` is how many requests to show."""

    def __init__(self, observed: Sequence[ObservedRequest], max_rows: int) -> None:
        self._observed = observed
        self._max_rows = max_rows

    def __rich__(self) -> RenderableType:
        now = time.monotonic()
        states = [(state_of(request), request) for request in self._observed]
        counts = {name: sum(1 for state, _ in states if state == name) for name in _ORDER}
        tokens = sum(len(request.chunk_times) for _, request in states)
        recent = sum(1 for _, request in states for at in request.chunk_times[-64:] if at > now - 1.0)
        head = Text.assemble(
            *[piece for name in _ORDER for piece in ((f"{counts[name]:3d} ", "bold"), (f"{name}   ", _STATES[name]))],
            (f"{tokens:6d}", "bold"),
            f" tokens, {recent} in the last second",
        )
        return Group(head, self._rows(states))

    def _rows(self, states: Sequence[tuple[str, ObservedRequest]]) -> Table:
        table = Table("request", "prompt", "output", "", "state", "first token", box=None, expand=False)
        table.columns[1].justify = "right"
        table.columns[3].justify = "right"
        table.columns[5].justify = "right"
        by_importance = sorted(states, key=lambda row: (_ORDER.index(row[0]), -(row[1].finished or 0.0)))
        for state, request in by_importance[: self._max_rows]:
            done, total = len(request.chunk_times), request.plan.max_tokens
            table.add_row(
                request.plan.request_id,
                str(len(request.plan.prompt_token_ids)),
                ProgressBar(total=total, completed=min(done, total), width=32),
                f"{done}/{total}",
                Text(state, style=_STATES[state]),
                format_seconds(request.ttft) if request.ttft is not None else "",
            )
        return table
