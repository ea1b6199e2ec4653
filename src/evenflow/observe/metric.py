"""What a row of the metrics table says, and the buckets that rows use."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from evenflow.core.events import Preempted, Rejected, StepRecord
from evenflow.observe.fold import SpanFold
from evenflow.observe.spans import RequestSpan

FactT = TypeVar("FactT")
Reading = float | tuple[float, ...] | dict[str, float] | None


class Kind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric(Generic[FactT]):
    """`read` gives what a fact adds (counter), observes (histogram) or is now (gauge, and every row of `state`).

    That is a number, a number per value of `label`, or None for nothing. The values in `label_values` are exported from
    the start, at 0; a tuple has a number for each of them. Where a fact is of one value of the label, `by` gives that
    value, and `read` one number: it costs a third of a table.
    """

    name: str
    kind: Kind
    help: str
    read: Callable[[FactT], Reading]
    buckets: tuple[float, ...] = ()
    label: str | None = None
    label_values: tuple[str, ...] = ()
    by: Callable[[FactT], str] | None = None


class EngineView(NamedTuple):
    """What the `state` rows look at when Prometheus asks."""

    spans: SpanFold
    last_step: StepRecord | None
    up: bool = True

    @property
    def kv_blocks_used(self) -> int:
        """Blocks that no running request holds are free, whatever they cache; so 0 when nobody runs."""
        return self.last_step.kv_blocks_used if self.last_step is not None and self.spans.num_running else 0

    @property
    def kv_usage(self) -> float:
        used = self.kv_blocks_used
        return used / self.last_step.kv_blocks_total if used and self.last_step is not None else 0.0

    @property
    def host_kv_usage(self) -> float:
        """Likewise, blocks that no swapped request holds are free."""
        step = self.last_step
        return step.host_blocks_used / step.host_blocks_total if step is not None and self.spans.num_swapped else 0.0


class MetricTable(NamedTuple):
    """Rows by the fact that moves them."""

    state: tuple[Metric[EngineView], ...]
    step: tuple[Metric[StepRecord], ...]
    preempted: tuple[Metric[Preempted], ...]
    rejected: tuple[Metric[Rejected], ...]
    admitted: tuple[Metric[RequestSpan], ...]
    first_token: tuple[Metric[RequestSpan], ...]
    token_gap: tuple[Metric[float], ...]
    finished: tuple[Metric[RequestSpan], ...]
    completed: tuple[Metric[RequestSpan], ...]
    front: tuple[Metric[int], ...]
    lost: tuple[Metric[int], ...]


# fmt: off
TTFT_BUCKETS = (
    .001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0,
    2560.0,
)
TOKEN_BUCKETS = (
    .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)
REQUEST_BUCKETS = (
    .3, .5, .8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0,
    7680.0,
)
STEP_BUCKETS = (.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3, .5, .75, 1.0, 2.5, 5.0, 10.0)
SCHEDULE_BUCKETS = (.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .1)
# fmt: on
STEP_TOKEN_BUCKETS = tuple(float(2**exponent) for exponent in range(15))
LENGTH_BUCKETS = tuple(float(digit * 10**exponent) for exponent in range(6) for digit in (1, 2, 5))
PARAMS_N_BUCKETS = (1.0, 2.0, 5.0, 10.0, 20.0)
