"""Looking into a running server: tails by group, and the life of one request.

Everything is a fold over the engine's events (observe/), fed after the streams were, and read on demand.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evenflow.core.errors import InvalidRequest
from evenflow.core.events import Event, StepRecord
from evenflow.observe.feed import SpanFeed
from evenflow.observe.fold import SpanFold
from evenflow.observe.group_tails import GroupRow, GroupTails
from evenflow.observe.metric import EngineView
from evenflow.observe.metrics import Metrics
from evenflow.observe.recent import RecentEvents
from evenflow.observe.sketch import Sketch
from evenflow.observe.stats_text import render_stats
from evenflow.observe.story import Story, StoryTeller, engine_ids
from evenflow.observe.story_svg import render_svg
from evenflow.observe.story_text import render_text
from evenflow.observe.tails import PERCENTS
from evenflow.observe.windows import WINDOWS
from evenflow.server.errors import NotFound
from evenflow.server.query import check_query

# Some minutes of a busy server, at about 1 KB per step of 64 requests.
EVENTS_KEPT = 50_000
# Folded in one go when nobody looks before (feed.py says why): some hundred steps, in about four milliseconds.
UNFOLDED = 512


class Observer:
    """What a server remembers of its engine's events. Feed and read it on one thread.

    With `metrics`, which must be of the same `spans`, one fold of the events serves both. An engine that is gone had no
    time to say what became of its requests: it runs none.
    """

    def __init__(
        self,
        *,
        now: Callable[[], float] = time.monotonic,
        events_kept: int = EVENTS_KEPT,
        spans: SpanFold | None = None,
        metrics: Metrics | None = None,
        engine_is_gone: Callable[[], bool] = lambda: False,
    ) -> None:
        self._now = now
        self._recent = RecentEvents(events_kept)
        self._unfolded: list[Sequence[Event]] = []
        self._num_unfolded = 0
        self._tails = GroupTails()
        self._last_step: StepRecord | None = None
        takers = (self._tails.take,) if metrics is None else (metrics.take, self._tails.take)
        if metrics is not None:
            metrics.settle = self.settle
        self._fold = SpanFold() if spans is None else spans
        self._spans = SpanFeed(self._fold, takers)
        self._engine_is_gone = engine_is_gone

    def feed(self, events: Sequence[Event]) -> None:
        # Between two steps every line touched here is fetched from memory, so they are few.
        self._unfolded.append(events)
        self._num_unfolded += len(events)
        if self._num_unfolded >= UNFOLDED:
            self._fold_all()

    def settle(self) -> None:
        """Fold and count what was put off: to be called by whoever is about to look."""
        self._fold_all()
        self._tails.settle()

    def _fold_all(self) -> None:
        if not self._unfolded:
            return
        events = list(chain.from_iterable(self._unfolded))
        self._unfolded.clear()
        self._num_unfolded = 0
        self._recent.extend(events)
        self._spans.feed(events)
        for event in reversed(events):
            if isinstance(event, StepRecord):
                self._last_step = event
                break

    def events_since(self, number: int) -> tuple[Sequence[Event], int]:
        """Events from this number on, as far as they are kept, and the number that the next one will have."""
        self._fold_all()
        return self._recent.since(number), self._recent.next_number

    def routes(self) -> list[Route]:
        return [
            Route("/v1/stats", self.stats, methods=["GET"]),
            Route("/v1/requests/{request_id}", self.request, methods=["GET"]),
        ]

    async def stats(self, request: Request) -> Response:
        """`?window=1m|5m|start` asks for one window, all of them otherwise; `?format=json|text`."""
        check_query(request, "window", "format")
        form = _form_of(request, "json", "text")
        asked = request.query_params.get("window")
        if asked is not None and asked not in WINDOWS:
            raise InvalidRequest(f"window must be one of {', '.join(WINDOWS)}, not {asked[:32]!r}", param="window")
        self.settle()
        now = self._now()
        windows = [asked] if asked is not None else list(WINDOWS)
        rows = {window: list(self._tails.rows(window, now=now)) for window in windows}
        if form == "text":
            return Response(render_stats(self._engine(), self._tails.num_finished, rows), media_type="text/plain")
        body = {
            "object": "stats",
            "now": now,
            "finished": self._tails.num_finished,
            "engine": self._engine(),
            "windows": {window: [_row(row) for row in rows[window]] for window in windows},
        }
        return _json(body)

    def _engine(self) -> dict[str, object] | None:
        """What it runs and holds now, also where requests ended after its last step; None before the first."""
        step = self._last_step
        if step is None:
            return None
        view = EngineView(SpanFold() if self._engine_is_gone() else self._fold, step)
        return {
            "step": step.step,
            "running": view.spans.num_running,
            "waiting": view.spans.num_waiting,
            "kv_blocks_used": view.kv_blocks_used,
            "kv_blocks_total": step.kv_blocks_total,
            "token_budget": step.token_budget,
        }

    async def request(self, request: Request) -> Response:
        """`?format=json|text|svg`."""
        check_query(request, "format")
        form = _form_of(request, "json", "text", "svg")
        story = self._story(request.path_params["request_id"])
        if form == "svg":
            return Response(render_svg(story), media_type="image/svg+xml", headers=_NO_SCRIPTS)
        if form == "text":
            return Response(render_text(story), media_type="text/plain")
        return _json(_story(story))

    def _story(self, name: str) -> Story:
        self.settle()
        tellers = [StoryTeller(engine_id) for engine_id in engine_ids(name)]
        self._tell(tellers, self._recent.since(0))
        for teller in tellers:
            if teller.story is not None:
                return teller.story
        raise NotFound(
            f"No request {name[:128]!r} is among the last events kept here; "
            "start the server with --event-log and use `evenflow explain` for older ones"
        )

    def _tell(self, tellers: Sequence[StoryTeller], events: Iterable[Event]) -> None:
        events = list(events)
        for teller in tellers:
            teller.feed(events)
            if self._last_step is not None:
                teller.close(self._last_step.end)


# A client chose the id that is drawn: nothing in the picture may run, even if it were not escaped.
_NO_SCRIPTS = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}


def _form_of(request: Request, *known: str) -> str:
    form = request.query_params.get("format", known[0])
    if form not in known:
        raise InvalidRequest(f"format must be {' or '.join(known)}, not {form[:32]!r}", param="format")
    return form


def _json(body: object) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")


def _row(row: GroupRow) -> dict[str, object]:
    return {
        "by": row.view,
        "group": row.name,
        "requests": row.num_requests,
        **{f"{name}_seconds": _latency(sketch) for name, sketch in row.latencies.items()},
        "ttft_parts_mean_seconds": row.ttft_parts,
        "queue_reasons_mean_seconds": row.queue_reasons,
    }


def _latency(sketch: Sketch) -> dict[str, float | int | None]:
    """A percentile that the sample cannot carry is null."""
    tail = sketch.tail()
    percentiles = {f"p{percent}": value for percent, value in zip(PERCENTS, tail.percentiles, strict=True)}
    return {"n": tail.num_observations, "mean": sketch.mean, **percentiles, "max": sketch.largest or None}


def _story(story: Story) -> dict[str, object]:
    begin = story.arrival_time
    return {
        "object": "request",
        "id": story.request_id,
        "complete": story.complete,
        "earlier_of_this_id": story.num_earlier,
        "prompt_tokens": story.num_prompt_tokens,
        "max_tokens": story.max_tokens,
        "output_tokens": story.num_output_tokens,
        "cached_tokens": story.num_cached_tokens,
        "tenant": story.tenant,
        "service_class": story.service_class,
        "priority": story.priority,
        "rejected_because": story.rejected_because,
        "ttft_seconds": None if story.first_token_time is None else story.first_token_time - begin,
        "e2e_seconds": None if story.finish_time is None else story.finish_time - begin,
        "finish_reason": story.finish_reason,
        "preempted_for": story.preempted_for,
        "seconds_by_kind": story.seconds_by_kind(),
        "wait_by_reason": story.wait_by_reason(),
        "phases": [
            {
                "kind": phase.kind,
                "start": phase.start - begin,
                "seconds": phase.seconds,
                "between_seconds": phase.between_seconds,
                "reason": phase.reason,
                "behind": phase.behind,
                "first_step": phase.first_step,
                "last_step": phase.last_step,
                "steps": phase.num_steps,
                "tokens": phase.num_tokens,
                "batch": phase.batch,
                "spent_on": [[name, tokens] for name, tokens in phase.spent_on.most_common(16)],
                "with": [[name, steps] for name, steps in phase.sharers.most_common(16)],
            }
            for phase in story.phases
        ],
    }
