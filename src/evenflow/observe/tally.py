"""What is counted of requests that ended: their latencies as sketches, the parts of their waits as sums.

A tally is a row of sums, a row of maxima, and the buckets that its observations fell into (sketch.py), all five
latencies in one: place = latency x 2048 + bucket. Places are gathered as they come, and counted when there are many of
them or someone looks, because an observation costs a tenth when some thousand are counted at once:

    sums     | ttft itl tpot e2e queue | five parts of the TTFT | seconds by reason ...     |
    largest  | ttft itl tpot e2e queue |
    places   [3 17 3 | 2065 2070 2065 2065 ... ]   --- compact --->   {3: 2, 17: 1, 2065: 3, 2070: 1, ...}
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from evenflow.observe.sketch import Sketch
from evenflow.observe.waits import WAIT_REASONS

LATENCIES: Final = ("ttft", "itl", "tpot", "e2e", "queue")
TTFT_PARTS: Final = ("intake", "queue", "prefill", "interleaved", "preempted")
COLUMNS: Final = (*LATENCIES, *TTFT_PARTS, *WAIT_REASONS)
NUM_LATENCIES: Final = len(LATENCIES)
FIRST_REASON: Final = NUM_LATENCIES + len(TTFT_PARTS)
BUCKETS: Final = 2048  # of one latency: more than any sketch has
_NUM_PLACES: Final = NUM_LATENCIES * BUCKETS
_MANY: Final = 16384  # places: as many as are counted in 60 us
_PIECE: Final = 64  # places take about the memory of an array without any

Places = NDArray[np.uint16]
_NO_PLACES: Final[Places] = np.empty(0, np.uint16)
_NO_COUNTS: Final = np.empty(0, np.int64)


class Tally:
    """`sums` are seconds in the order of COLUMNS; those of parts and reasons are over `num_first_tokens` requests.

    `largest` is in the order of LATENCIES. Whoever adds observations sets these, and hands over their places.
    """

    __slots__ = ("_counts", "_new", "_num_new", "_places", "largest", "num_first_tokens", "num_requests", "sums")

    def __init__(self) -> None:
        self.num_requests = 0
        self.num_first_tokens = 0
        self.sums = np.zeros(len(COLUMNS))
        self.largest = np.zeros(NUM_LATENCIES)
        self._places, self._counts = _NO_PLACES, _NO_COUNTS
        self._new: list[Places] = []
        self._num_new = 0

    def gather(self, places: Places) -> None:
        """Of some observations, one each. Kept as they are: several tallies may share them."""
        self._new.append(places)
        self._num_new += len(places) + _PIECE
        if self._num_new >= _MANY:
            self._compact()

    def _compact(self) -> None:
        dense = np.bincount(np.concatenate(self._new), minlength=_NUM_PLACES)
        dense[self._places] += self._counts
        self._keep(dense)
        self._new.clear()
        self._num_new = 0

    def _keep(self, dense: NDArray[np.int64]) -> None:
        occupied = dense.nonzero()[0]
        self._places, self._counts = occupied.astype(np.uint16), dense[occupied]

    @property
    def latencies(self) -> dict[str, Sketch]:
        """By name; those that were observed."""
        if self._new:
            self._compact()
        found = {}
        edges = np.searchsorted(self._places, np.arange(NUM_LATENCIES + 1) * BUCKETS).tolist()
        for index, (name, begin, end) in enumerate(zip(LATENCIES, edges, edges[1:], strict=False)):
            if begin < end:
                sketch = found[name] = Sketch()
                buckets = (self._places[begin:end] - index * BUCKETS).tolist()
                counts = dict(zip(buckets, self._counts[begin:end].tolist(), strict=True))
                sketch.add_counted(counts, (float(self.sums[index]),), float(self.largest[index]))
        return found

    def ttft_parts(self) -> dict[str, float]:
        """Mean seconds per request with a first token; they sum to the mean TTFT."""
        if not self.num_first_tokens:
            return {}
        means = self.sums[NUM_LATENCIES:FIRST_REASON] / self.num_first_tokens
        return dict(zip(TTFT_PARTS, means.tolist(), strict=True))

    def queue_reasons(self) -> dict[str, float]:
        """Likewise, of the reasons that there were; they sum to the `queue` part."""
        sums = zip(WAIT_REASONS, self.sums[FIRST_REASON:].tolist(), strict=True)
        return {reason: seconds / self.num_first_tokens for reason, seconds in sorted(sums) if seconds}


def merged(tallies: Sequence[Tally]) -> Tally:
    """All of them as one."""
    whole, dense = Tally(), np.zeros(_NUM_PLACES, np.int64)
    for tally in tallies:
        if tally._new:
            tally._compact()
        whole.num_requests += tally.num_requests
        whole.num_first_tokens += tally.num_first_tokens
        whole.sums += tally.sums
        np.maximum(whole.largest, tally.largest, out=whole.largest)
        dense[tally._places] += tally._counts
    whole._keep(dense)
    return whole
