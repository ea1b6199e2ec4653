"""Tails by length group, service class and tenant, over windows, for a server that never ends: what /v1/stats says.

Every request is counted once in `all` and once per view. What is known only at the end (its output length, its token
gaps) is counted at the end; TTFT then too, so that every figure of a group is of the same requests. A request that
never got a token has no TTFT: it is counted in `num_requests` and by its finish reason.

Tenants come from clients, so their number has a bound: the first MAX_NAMES have their own row, all others share one.

Who ended is gathered and counted when someone asks, or when GATHERED have ended (counting.py says why).
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from evenflow.core.events import Event
from evenflow.observe.counting import count
from evenflow.observe.feed import SpanFeed
from evenflow.observe.fold import SpanFold
from evenflow.observe.folded import Folded
from evenflow.observe.length_groups import LengthGroups
from evenflow.observe.sketch import Sketch
from evenflow.observe.spans import RequestSpan
from evenflow.observe.tally import LATENCIES, Tally
from evenflow.observe.windows import WINDOWS, WindowedTally, slice_of

MAX_NAMES: Final = 100
OTHERS: Final = "(others)"
VIEWS: Final = ("all", "lengths", "class", "tenant")
GATHERED: Final = 256  # counting so many takes about 2 ms
_GATHERED_TOKENS: Final = 1 << 16


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
        self._length_names = self._lengths.names
        self._feed: SpanFeed | None = None
        self._groups: dict[tuple[str, str], WindowedTally] = {}
        self._names: dict[str, set[str]] = {"class": set(), "tenant": set()}
        self._num_finished: Counter[str] = Counter()
        self._gathered: list[RequestSpan] = []
        self._gathered_tokens = 0
        self._slice = 0
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

    def take(self, folded: Folded) -> None:
        if folded.steps:
            self._now = max(self._now, folded.steps[-1].end)
        for span in folded.finished:
            assert span.finish_time is not None and span.finish_reason is not None
            self._now = max(self._now, span.finish_time)
            self._num_finished[span.finish_reason.value] += 1
            self._gathered_tokens += len(span.token_times)
        self._gathered += folded.finished
        if len(self._gathered) >= GATHERED or self._gathered_tokens >= _GATHERED_TOKENS:
            self.settle()

    def settle(self) -> None:
        """Count who ended and is not counted yet."""
        if not self._gathered:
            return
        cell_of: dict[tuple[int, int, str, str], int] = {}
        cells, tallies = [], list[list[Tally]]()
        for span in self._gathered:
            # Who was aborted between two steps may have ended before the last step did.
            self._slice = max(self._slice, slice_of(span.finish_time or 0.0))
            lengths = self._lengths.index_of(span.num_prompt_tokens, span.num_output_tokens)
            key = (self._slice, lengths, span.service_class, span.tenant)
            cell = cell_of.get(key)
            if cell is None:
                cell = cell_of[key] = len(tallies)
                tallies.append([tally for group in self._groups_of(span, lengths) for tally in group.at(self._slice)])
            cells.append(cell)
        count(self._gathered, cells, tallies)
        self._gathered.clear()
        self._gathered_tokens = 0

    def _groups_of(self, span: RequestSpan, lengths: int) -> Iterator[WindowedTally]:
        """One per view."""
        yield self._group("all", "")
        yield self._group("lengths", self._length_names[lengths])
        yield self._group("class", self._bounded("class", span.service_class))
        yield self._group("tenant", self._bounded("tenant", span.tenant))

    def _group(self, view: str, name: str) -> WindowedTally:
        group = self._groups.get((view, name))
        if group is None:
            group = self._groups[view, name] = WindowedTally()
        return group

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
        self.settle()
        now = self._now if now is None else max(now, self._now)
        order = {name: index for index, name in enumerate(self._length_names)}
        keys = sorted(self._groups, key=lambda key: (VIEWS.index(key[0]), order.get(key[1], 0), key[1]))
        found = [_row(view, name, self._groups[view, name].window(window, now)) for view, name in keys]
        return [row for row in found if row.num_requests]


def _row(view: str, name: str, tally: Tally) -> GroupRow:
    found = tally.latencies
    return GroupRow(
        view=view,
        name=name,
        num_requests=tally.num_requests,
        latencies={latency: found.get(latency, Sketch()) for latency in LATENCIES},
        ttft_parts=tally.ttft_parts(),
        queue_reasons=tally.queue_reasons(),
    )
