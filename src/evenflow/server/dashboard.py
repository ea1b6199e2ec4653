"""The dashboard: one page without anything from elsewhere, and the steps that it draws.

The page holds no data and may be loaded by anyone; everything it shows it asks for with the key that its user gives it.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evenflow.core.errors import InvalidRequest
from evenflow.core.events import Arrived, Event, Finished, FirstToken, Preempted, Scheduled, StepRecord
from evenflow.core.request import RequestId
from evenflow.server.query import check_query

DASHBOARD_PATH: Final = "/dashboard"
PRESETS_PATH: Final = "/dashboard/presets"
MAX_STEPS: Final = 400  # of one answer; a page that was away sees the latest
DETAILED_STEPS: Final = 60  # these say whom they fed
EVENTS_LOOKED_AT: Final = 20_000
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)


class Dashboard:
    """`events_since(number)` gives events from that number on, and the number that the next one will have."""

    def __init__(
        self,
        events_since: Callable[[int], tuple[Sequence[Event], int]],
        engine_state: Callable[[], str],
        preset_names: Sequence[str],
    ) -> None:
        self._events_since = events_since
        self._engine_state = engine_state
        self._preset_names = list(preset_names)
        self._page = files("evenflow.server").joinpath("dashboard.html").read_bytes()

    def routes(self) -> list[Route]:
        return [
            Route(DASHBOARD_PATH, self.page, methods=["GET"]),
            Route(PRESETS_PATH, self.presets, methods=["GET"]),
            Route("/v1/steps", self.steps, methods=["GET"]),
        ]

    async def page(self, request: Request) -> Response:
        return Response(self._page, media_type="text/html", headers={"content-security-policy": _POLICY})

    async def presets(self, request: Request) -> Response:
        check_query(request)
        return Response(msgspec.json.encode(self._preset_names), media_type="application/json")

    async def steps(self, request: Request) -> Response:
        """`?after=N`: what happened since the answer whose `next` was N."""
        check_query(request, "after")
        text = request.query_params.get("after", "0")
        if not text.isascii() or not text.isdecimal() or len(text) > 15:
            raise InvalidRequest(f"after must be the `next` of an earlier answer, not {text[:32]!r}", param="after")
        events, following = self._events_since(int(text))
        steps, others = summarise(events[-EVENTS_LOOKED_AT:])
        body = {"engine": self._engine_state(), "next": following, "steps": steps, "events": others}
        return Response(msgspec.json.encode(body), media_type="application/json")


def summarise(events: Sequence[Event]) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Steps as the page draws them, and what befell requests during them; only of the latest steps.

    The step of an arrival is the one that comes after it; None where these events do not say, since none has a step.
    """
    records: list[tuple[StepRecord, frozenset[RequestId]]] = []
    others: list[dict[str, object]] = []
    new: set[RequestId] = set()
    # A request that arrived while nothing ran is not of the first step ever: it would seem to have waited since then.
    step = next((event.step - 1 for event in events if isinstance(event, StepRecord)), None)
    for event in events:
        match event:
            case StepRecord():
                records.append((event, frozenset(new)))
                new.clear()
                step = event.step
            case FirstToken():
                new.add(event.request_id)
            case Arrived():
                others.append({"type": "Arrived", "id": event.request_id, "step": None if step is None else step + 1})
            case Scheduled() | Preempted() | Finished():
                others.append({"type": type(event).__name__, "id": event.request_id, "step": event.step})
            case _:
                pass
    latest = records[-MAX_STEPS:]
    detailed = len(latest) - DETAILED_STEPS
    return [_step(record, first, index >= detailed) for index, (record, first) in enumerate(latest)], others


def _step(record: StepRecord, first_tokens: frozenset[RequestId], detailed: bool) -> dict[str, object]:
    found: dict[str, object] = {
        "step": record.step,
        "start": record.start,
        "end": record.end,
        "prefill": record.prefill_tokens,
        "decode": record.decode_tokens,
        "budget": record.token_budget,
        "running": record.running,
        "waiting": record.waiting,
        "kv_used": record.kv_blocks_used,
        "kv_total": record.kv_blocks_total,
        "preemptions": record.preemptions,
        "doors": Counter(door.reason.value for door in record.doors),
    }
    if detailed:
        found["fed"] = [(name, num, "p" if num > 1 or name in first_tokens else "d") for name, num in record.scheduled]
        found["left_out"] = [name for name, _ in record.left_out]
    return found
