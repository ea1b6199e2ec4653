"""Whether a run may be believed: what was wrong with the load generator, and what a reader must know of the server.

A run is invalid if the figures are not about the load that was asked for: sent late, stamped late, not sent at all. It
has a caution where they are, but mean something else than they seem to.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from evenflow.replay.measure import Measured
from evenflow.replay.record import Record
from evenflow.replay.request import Reason, TokenCounts

MAX_LAG_SECONDS = 0.005
MAX_LAG_SHARE_OF_GAP = 0.01
MAX_FIRST_SEND_SECONDS = 0.1
# Of requests.
_MANY_FAILED = 0.01
_MANY_DIFFER = 0.01


@dataclass(frozen=True, slots=True)
class Verdict:
    """Valid if there is no `fault`."""

    faults: tuple[str, ...]
    cautions: tuple[str, ...]
    dispatch_lag_p99: float | None
    allowed_lag: float | None

    @property
    def valid(self) -> bool:
        return not self.faults

    @property
    def title(self) -> str:
        if self.faults:
            return "invalid"
        return "valid, with cautions" if self.cautions else "valid"


def judge(
    records: Sequence[Record], measured: Measured, loop_lags: Sequence[float], gave_up: str | None, *, open_loop: bool
) -> Verdict:
    lags = [record.dispatch_lag for record in records if record.dispatch_lag is not None]
    lag = float(np.percentile(lags, 99)) if lags else None
    allowed = allowed_lag(records) if open_loop else MAX_LAG_SECONDS
    faults = [
        *_not_sent(measured, gave_up),
        *_late(lag, allowed, loop_lags, records, open_loop=open_loop),
        *_failures(records, measured),
    ]
    return Verdict(tuple(faults), tuple(_cautions(records, measured)), lag, allowed)


def allowed_lag(records: Sequence[Record]) -> float:
    """The greater of 5 ms and 1 % of the mean gap between sends."""
    times = [record.intended for record in records]
    mean_gap = (max(times) - min(times)) / max(1, len(times) - 1) if times else 0.0
    return max(MAX_LAG_SECONDS, MAX_LAG_SHARE_OF_GAP * mean_gap)


def _not_sent(measured: Measured, gave_up: str | None) -> Iterator[str]:
    if gave_up is not None:
        yield f"the run stopped early: {gave_up}"
    if measured.num_unsent:
        yield f"{measured.num_unsent} of {measured.num_planned} requests were never sent"


def _late(
    lag: float | None, allowed: float, loop_lags: Sequence[float], records: Sequence[Record], *, open_loop: bool
) -> Iterator[str]:
    if lag is not None and lag > allowed:
        yield (
            f"requests were sent late: the dispatch lag's P99 is {lag * 1e3:.1f} ms, above {allowed * 1e3:.1f} ms; the "
            "client is short of CPU"
        )
    beat = float(np.percentile(loop_lags, 99)) if len(loop_lags) else 0.0
    if beat > 2 * MAX_LAG_SECONDS:
        yield f"answers were read late: the client's own loop was {beat * 1e3:.1f} ms behind at P99"
    if open_loop:
        first = min(((record.sent, record.intended) for record in records if record.sent is not None), default=None)
        if first is not None and first[0] - first[1] > MAX_FIRST_SEND_SECONDS:
            yield f"the first request was sent {(first[0] - first[1]) * 1e3:.0f} ms after it was due"


def _failures(records: Sequence[Record], measured: Measured) -> Iterator[str]:
    if measured.num_ok == 0:
        yield "no request succeeded: there is nothing to measure"
    limited = sum(record.reason is Reason.CLIENT_LIMIT for record in records)
    if limited:
        yield f"{limited} requests got no connection because this machine has no more; raise its limit of open files"


def _cautions(records: Sequence[Record], measured: Measured) -> Iterator[str]:
    num_failed = sum(num for _, num, _ in measured.failed)
    if num_failed:
        share = num_failed / measured.num_planned
        spared = "; what remained had an emptier server" if share > _MANY_FAILED else ""
        yield f"{num_failed} of {measured.num_planned} requests failed ({share:.1%}) and are in no latency{spared}"
    good = [record for record in records if record.ok]
    yield from _lengths_differ(good)
    yield from _counts(good)
    if measured.cached_share is not None and measured.cached_share > 0.01:
        yield f"the server had {measured.cached_share:.1%} of the prompt tokens in its prefix cache"


def _lengths_differ(good: Sequence[Record]) -> Iterator[str]:
    pairs = [(record.max_tokens, record.num_output_tokens or 0) for record in good]
    wrong = [(asked, got) for asked, got in pairs if asked != got]
    if len(wrong) > _MANY_DIFFER * len(pairs):
        asked, got = (median(column) for column in zip(*wrong, strict=True))
        yield (
            f"{len(wrong)} of {len(pairs)} answers have another length than asked for (median {got:.0f} tokens for "
            f"{asked:.0f}): the load is not the trace's"
        )
    prompts = [(r.num_prompt_tokens, r.server_prompt_tokens) for r in good if r.server_prompt_tokens is not None]
    off = [(planned, had) for planned, had in prompts if planned != had]
    if len(off) > _MANY_DIFFER * max(1, len(prompts)):
        most = max(off, key=lambda pair: abs(pair[1] - pair[0]) / pair[0])
        yield (
            f"{len(off)} of {len(prompts)} prompts have another number of tokens for the server than planned "
            f"(at worst {most[1]} for {most[0]})"
        )


def _counts(good: Sequence[Record]) -> Iterator[str]:
    spread = sum(record.token_counts is TokenCounts.SPREAD for record in good)
    assumed = sum(record.token_counts is TokenCounts.ASSUMED for record in good)
    if spread:
        yield (
            f"in {spread} of {len(good)} answers a chunk may hold several tokens: their ITL spreads the server's total "
            "over the chunks by their text"
        )
    if assumed:
        yield f"in {assumed} of {len(good)} answers the server counts no tokens: every chunk is taken for one"
