"""evenflow against the best peer, one line per comparison. A ratio says how many times better evenflow is: 2 is twice
as fast, or half as long; 1 is as good. Where a peer or a workload is missing, so is the line.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from evenflow.bench.peers.contenders import Precision
from evenflow.bench.peers.figures import Entry, Latency

Figure = Callable[[Entry], float | None]


@dataclass(frozen=True, slots=True)
class Ratio:
    """`goal` is what is asked for; `rival` is who was best, None where evenflow is measured against itself."""

    what: str
    own: str
    rival: str | None
    own_figure: float
    rival_figure: float | None
    ratio: float
    goal: float

    @property
    def held(self) -> bool:
        return self.ratio >= self.goal


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Of evenflow's row at `own` precision with the best peer's at one of `rivals`, of one engine if it is named."""

    what: str
    own: Precision
    rivals: frozenset[Precision]
    figure: Figure
    lower_is_better: bool
    goal: float
    engine: str | None = None


_ANY = frozenset(Precision)
_INT8, _BF16, _FOUR_BIT = (frozenset({p}) for p in (Precision.INT8, Precision.BF16, Precision.FOUR_BIT))


def _w1(entry: Entry) -> float | None:
    """Of all of it: the first requests alone are another work."""
    return None if entry.w1 is None or entry.first_requests else entry.w1.output_tokens_per_second


def _ms_per_token(entry: Entry) -> float | None:
    return None if entry.w2 is None else entry.w2.ms_per_token


def _ttft(entry: Entry) -> float | None:
    return None if entry.w2 is None else entry.w2.ttft_ms


def _long(entry: Entry) -> float | None:
    return None if entry.long is None else entry.long.total_tokens_per_second


_OFFLINE = (
    _Comparison("W1 output tokens/s, any precision", Precision.INT8, _ANY, _w1, False, 1.5),
    _Comparison("W1 output tokens/s, bf16", Precision.BF16, _BF16, _w1, False, 1.2),
    _Comparison("W2 ms per token, int8", Precision.INT8, _INT8, _ms_per_token, True, 1 / 0.7),
    _Comparison("W2 ms per token, int8 against 4-bit", Precision.INT8, _FOUR_BIT, _ms_per_token, True, 1.0),
    _Comparison("W2 ms per token, bf16", Precision.BF16, _BF16, _ms_per_token, True, 1.0, "llama.cpp"),
    _Comparison("W2 first token, int8", Precision.INT8, _INT8, _ttft, True, 1.0),
    _Comparison("W2 first token, bf16", Precision.BF16, _BF16, _ttft, True, 1.0),
    _Comparison("long prompts, total tokens/s, int8", Precision.INT8, _INT8, _long, False, 1.5),
    _Comparison("long prompts, total tokens/s, bf16", Precision.BF16, _BF16, _long, False, 1.5),
)
_FRACTION_GOALS = {Precision.INT8: 0.70, Precision.BF16: 0.75}
_ONLINE_SHARE = 0.9
_TTFT_P95_GOAL = 1.7
_ITL_P99_GOAL = 2.0


def ratios(entries: Sequence[Entry]) -> list[Ratio]:
    found = (_compare(each, entries) for each in (*_OFFLINE, *_online(entries)))
    return [*(ratio for ratio in found if ratio is not None), *_fractions(entries)]


def _compare(comparison: _Comparison, entries: Sequence[Entry]) -> Ratio | None:
    own = [entry for entry in entries if not entry.is_peer and entry.precision is comparison.own]
    peers = [
        entry
        for entry in entries
        if entry.is_peer and entry.precision in comparison.rivals and comparison.engine in (None, entry.engine)
    ]
    best = max if not comparison.lower_is_better else min
    ours = best(_figures(own, comparison.figure), default=None)
    theirs = best(_figures(peers, comparison.figure), default=None)
    if ours is None or theirs is None:
        return None
    (own_figure, own_name), (rival_figure, rival_name) = ours, theirs
    ratio = rival_figure / own_figure if comparison.lower_is_better else own_figure / rival_figure
    return Ratio(comparison.what, own_name, rival_name, own_figure, rival_figure, ratio, comparison.goal)


def _figures(entries: Sequence[Entry], figure: Figure) -> list[tuple[float, str]]:
    both = ((figure(entry), entry.name) for entry in entries)
    return [(value, name) for value, name in both if value is not None]


def _online(entries: Sequence[Entry]) -> Iterator[_Comparison]:
    """At each rate that was measured; what is asked for holds at 0.9 of the best peer's rate, and so below it."""

    def of(share: float, pick: Callable[[Latency], float | None]) -> Figure:
        return lambda entry: pick(entry.online[share]) if share in entry.online else None

    for share in sorted({share for entry in entries for share in entry.online}):
        ttft, itl = (_TTFT_P95_GOAL, _ITL_P99_GOAL) if share == _ONLINE_SHARE else (1.0, 1.0)
        p95, p99 = of(share, lambda latency: latency.ttft.p95), of(share, lambda latency: latency.itl.p99)
        yield _Comparison(f"W3 at {share:g}, TTFT P95", Precision.INT8, _ANY, p95, True, ttft)
        yield _Comparison(f"W3 at {share:g}, ITL P99", Precision.INT8, _ANY, p99, True, itl)


def _fractions(entries: Sequence[Entry]) -> Iterator[Ratio]:
    for entry in entries:
        fraction = entry.w1.share_of_products if entry.w1 is not None else None
        if fraction is not None:
            what = f"W1, share of the matrix products' time, {entry.precision.value}"
            goal = _FRACTION_GOALS[entry.precision]
            yield Ratio(what, entry.name, None, fraction, None, fraction, goal)
