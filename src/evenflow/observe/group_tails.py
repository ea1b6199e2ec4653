"""Tails by length group, service class and tenant, over windows, for a server that never ends: what /v1/stats says.

Every request is counted once in `all` and once per view. What is known only at the end (its output length, its token
gaps) is counted at the end; TTFT then too, so that every figure of a group is of the same requests. A request that
never got a token has no TTFT: it is counted in `num_requests` and by its finish reason.

Tenants come from clients, so their number has a bound: the first MAX_NAMES have their own row, all others share one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from evenflow.core.events import Event, StepRecord
from evenflow.observe.fold import SpanFeed, SpanFold, SpanUpdate
from evenflow.observe.length_groups import LengthGroups
from evenflow.observe.sketch import Sketch
from evenflow.observe.spans import RequestSpan
from evenflow.observe.windows import WINDOWS, WindowedSketches

MAX_NAMES: Final = 100
OTHERS: Final = "(others)"
VIEWS: Final = ("all", "lengths", "class", "tenant")
LATENCIES: Final = ("ttft", "itl", "tpot", "e2e", "queue")
TTFT_PARTS: Final = ("intake", "queue", "prefill", "interleaved", "preempted")
_PART: Final = "ttft part: "
_REASON: Final = "queue reason: "


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group in one window. `latencies` are sketches of seconds by name; parts and reasons are mean seconds per
    request with a first token, so that the parts sum to the mean TTFT and the reasons to its `queue` part."""

    view: str
    name: str
    num_requests: int
    latencies: dict[str, Sketch]
    ttft_parts: dict[str, float]
    queue_reasons: dict[str, float]


class GroupTails:
    """Feed it every event in order, or have a `SpanFeed` call `take`; ask for `rows` at any time."""

    def __init__(self, groups: LengthGroups | None = None) -> None:
        self._lengths = groups or LengthGroups()
        self._feed: SpanFeed | None = None
        self._groups: dict[tuple[str, str], WindowedSketches] = {}
        self._names: dict[str, set[str]] = {"class": set(), "tenant": set()}
        self._num_finished: Counter[str] = Counter()
        self._now = 0.0

    @property
    def now(self) -> float:
        """The end of the last step; the clock of the events."""
        return self._now

    @property
    def num_finished(self) -> dict[str, int]:
        """By finish reason, since the start."""
        return dict(self._num_finished)

    def feed(self, events: Iterable[Event]) -> None:
        if self._feed is None:
            self._feed = SpanFeed(SpanFold(), (self.take,))
        self._feed.feed(events)

    def take(self, event: Event, update: SpanUpdate) -> None:
        if isinstance(event, StepRecord):
            self._now = event.end
        for span in update.finished:
            self._take(span)

    def _take(self, span: RequestSpan) -> None:
        assert span.finish_time is not None and span.finish_reason is not None
        self._now = max(self._now, span.finish_time)
        self._num_finished[span.finish_reason.value] += 1
        for group in self._groups_of(span):
            _count(group, span, span.finish_time)

    def _groups_of(self, span: RequestSpan) -> Iterator[WindowedSketches]:
        lengths = self._lengths.name_of(span.num_prompt_tokens, span.num_output_tokens)
        names = {
            "all": "",
            "lengths": lengths,
            "class": self._bounded("class", span.service_class),
            "tenant": self._bounded("tenant", span.tenant),
        }
        for view, name in names.items():
            group = self._groups.get((view, name))
            if group is None:
                group = self._groups[view, name] = WindowedSketches()
            yield group

    def _bounded(self, view: str, name: str) -> str:
        names = self._names[view]
        if name not in names:
            if len(names) >= MAX_NAMES:
                return OTHERS
            names.add(name)
        return name

    def rows(self, window: str = "start", *, now: float | None = None) -> list[GroupRow]:
        """Groups that the window saw, `all` first, then by view; lengths from short to long."""
        assert window in WINDOWS
        now = self._now if now is None else max(now, self._now)
        order = {name: index for index, name in enumerate(self._lengths.names)}
        keys = sorted(self._groups, key=lambda key: (VIEWS.index(key[0]), order.get(key[1], 0), key[1]))
        found = [_row(view, name, self._groups[view, name].window(window, now)) for view, name in keys]
        return [row for row in found if row.num_requests]


def _count(sketches: WindowedSketches, span: RequestSpan, time: float) -> None:
    sketches.add("request", 0.0, time)
    if span.queue_seconds is not None:
        sketches.add("queue", span.queue_seconds, time)
    if span.ttft_seconds is not None:
        sketches.add("ttft", span.ttft_seconds, time)
    if span.ttft_parts is not None:
        parts = span.ttft_parts
        for name, seconds in zip(
            TTFT_PARTS,
            (parts.intake, sum(parts.queue.values()), parts.prefill, parts.interleaved, parts.preempted),
            strict=True,
        ):
            sketches.add(_PART + name, seconds, time)
        for reason, seconds in parts.queue.items():
            sketches.add(_REASON + reason, seconds, time)
    if len(span.token_times) > 1:
        sketches.add_many("itl", span.itl_seconds, time)
    if span.completed:
        if span.e2e_seconds is not None:
            sketches.add("e2e", span.e2e_seconds, time)
        if span.tpot_seconds is not None:
            sketches.add("tpot", span.tpot_seconds, time)


def _row(view: str, name: str, sketches: dict[str, Sketch]) -> GroupRow:
    num_first_tokens = sketches[_PART + "queue"].num_observations if _PART + "queue" in sketches else 0
    requests = sketches.get("request")
    return GroupRow(
        view=view,
        name=name,
        num_requests=requests.num_observations if requests is not None else 0,
        latencies={latency: sketches.get(latency, Sketch()) for latency in LATENCIES},
        ttft_parts={
            part: sketches[_PART + part].total / num_first_tokens for part in TTFT_PARTS if _PART + part in sketches
        },
        queue_reasons={
            key.removeprefix(_REASON): sketch.total / num_first_tokens
            for key, sketch in sorted(sketches.items())
            if key.startswith(_REASON)
        },
    )
