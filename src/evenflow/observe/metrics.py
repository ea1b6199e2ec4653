"""What Prometheus sees: the table of metrics_table.py, folded over the events.

The live server feeds each step's events; feeding the same events from a log gives the same numbers, to the last bit.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from evenflow.core.events import Event, StepRecord
from evenflow.observe.feed import SpanFeed
from evenflow.observe.fold import SpanFold
from evenflow.observe.folded import Folded
from evenflow.observe.metric import EngineView, Metric
from evenflow.observe.metrics_table import METRICS
from evenflow.observe.series import Series

LABEL_NAMES = ("model_name", "engine")

FactT = TypeVar("FactT")


class Metrics(Collector):
    """One engine's metrics in a registry of their own. Feed and render from one thread.

    Either `feed` it, or have a `SpanFeed` of the same `spans` call `take`; who does so only now and then sets `settle`,
    which is called when someone is about to look.
    """

    def __init__(self, model_name: str, engine: str = "0", spans: SpanFold | None = None) -> None:
        self._labels = (model_name, engine)
        self._spans = SpanFold() if spans is None else spans
        self._last_step: StepRecord | None = None
        self._engine_is_gone = False
        self.settle: Callable[[], None] = lambda: None
        self._state = _series(METRICS.state)
        self._step = _series(METRICS.step)
        self._preempted = _series(METRICS.preempted)
        self._rejected = _series(METRICS.rejected)
        self._admitted = _series(METRICS.admitted)
        self._first_token = _series(METRICS.first_token)
        self._token_gap = _series(METRICS.token_gap)
        self._finished = _series(METRICS.finished)
        self._completed = _series(METRICS.completed)
        self._front = _series(METRICS.front)
        self._lost = _series(METRICS.lost)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def feed(self, events: Iterable[Event]) -> None:
        SpanFeed(self._spans, (self.take,)).feed(events)

    def take(self, folded: Folded) -> None:
        if folded.steps:
            self._last_step = folded.steps[-1]
        _add(self._step, folded.steps)
        _add(self._preempted, folded.preempted)
        _add(self._rejected, folded.rejected)
        _add(self._admitted, folded.admitted)
        _add(self._first_token, folded.first_tokens)
        for series in self._token_gap:
            series.add_counted(folded.token_gaps)
        _add(self._finished, folded.finished)
        _add(self._completed, [span for span in folded.finished if span.completed])

    def observe_params_n(self, n: int) -> None:
        """A request for `n` completions came in; only the front knows that they belong together."""
        _add(self._front, (n,))

    def engine_died(self, num_lost: int) -> None:
        """It had no time to say so: what it was running and holding is no more, and the gauges fall to zero.

        `num_lost` requests ended with it; only the front knows how many.
        """
        self._engine_is_gone = True
        _add(self._lost, (num_lost,))

    def render(self) -> tuple[bytes, str]:
        """The exposition text and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def collect(self) -> Iterator[Family]:
        self.settle()
        view = (
            EngineView(SpanFold(), None, up=False) if self._engine_is_gone else EngineView(self._spans, self._last_step)
        )
        for state in self._state:
            state.put(view)
        for group in (
            self._state,
            self._step,
            self._preempted,
            self._rejected,
            self._admitted,
            self._first_token,
            self._token_gap,
            self._finished,
            self._completed,
            self._front,
            self._lost,
        ):
            for series in group:
                yield series.family(LABEL_NAMES, self._labels)


def _series(rows: tuple[Metric[FactT], ...]) -> tuple[Series[FactT], ...]:
    return tuple(Series(row) for row in rows)


def _add(group: tuple[Series[FactT], ...], facts: Sequence[FactT]) -> None:
    if facts:
        for series in group:
            series.add_all(facts)
