"""Times that cannot be what they say: a wrong unit, or two units in one file, gives a load that nobody ever saw.

The bounds are far outside every published trace (5 s to 121 days, 0.5 to 810 requests per second), and far inside what
a factor of 1,000 does to them.
"""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from evenflow.workload.trace import TraceError

MAX_SPAN_SECONDS = 400 * 86_400.0
MAX_RATE = 50_000.0
MAX_MEAN_GAP_SECONDS = 100.0
_MIN_REQUESTS = 100
# The quarter of the gaps at the start against the quarter at the end.
_UNIT_FACTORS = ((300.0, 3_000.0), (3e5, 3e6))


def check_times(arrivals: Sequence[float], lines: Sequence[int], source: str) -> None:
    """`lines` are where the arrivals stand, for the message."""
    span = arrivals[-1] - arrivals[0]
    if span > MAX_SPAN_SECONDS:
        at = max(range(1, len(arrivals)), key=lambda i: arrivals[i] - arrivals[i - 1])
        jump = arrivals[at] - arrivals[at - 1]
        raise TraceError(
            f"{source} line {lines[at]}: the trace would span {span / 86_400:.6g} days, with a jump of {jump:.6g} s "
            "here; are its times of mixed units, or not in the unit of its format (--time-unit)?"
        )
    if len(arrivals) < _MIN_REQUESTS:
        return
    _check_one_unit(arrivals, lines, source)
    rate = (len(arrivals) - 1) / span if span > 0.0 else float("inf")
    if rate > MAX_RATE or rate < 1.0 / MAX_MEAN_GAP_SECONDS:
        raise TraceError(
            f"{source}: {len(arrivals)} requests in {span:.6g} s ({rate:.3g}/s) are not plausible; say the unit of its "
            "times with --time-unit"
        )


def _check_one_unit(arrivals: Sequence[float], lines: Sequence[int], source: str) -> None:
    """Half a file in seconds and half in milliseconds may still be sorted; the gaps show it."""
    gaps = [b - a for a, b in pairwise(arrivals)]
    quarter = len(gaps) // 4
    first = median([gap for gap in gaps[:quarter] if gap > 0.0] or [0.0])
    last = median([gap for gap in gaps[-quarter:] if gap > 0.0] or [0.0])
    if not first or not last:
        return
    factor = max(first / last, last / first)
    for low, high in _UNIT_FACTORS:
        if low <= factor <= high:
            at = max(range(len(gaps)), key=gaps.__getitem__) + 1
            raise TraceError(
                f"{source}: its gaps change by a factor of {factor:.0f} from the first quarter to the last, with the "
                f"largest before line {lines[at]}; does it mix two units of time?"
            )
