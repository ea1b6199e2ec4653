"""Records of runs that never were, for what measures and compares them."""

from dataclasses import replace

import numpy as np

from evenflow.replay.record import Record
from evenflow.replay.request import Reason, TokenCounts
from evenflow.replay.result import Result


def record(
    index: int,
    sent: float,
    *,
    ttft: float = 0.1,
    gaps: tuple[float, ...] = (0.02, 0.02, 0.02),
    prompt: int = 100,
    **fields: object,
) -> Record:
    times = tuple(float(t) for t in sent + ttft + np.concatenate([[0.0], np.cumsum(gaps)]))
    whole = Record(
        request_id=f"r{index}",
        intended=sent,
        allowed=sent,
        sent=sent,
        finished=times[-1],
        num_prompt_tokens=prompt,
        max_tokens=len(times),
        num_output_tokens=len(times),
        server_prompt_tokens=prompt,
        cached_tokens=None,
        service_class=None,
        tenant=None,
        reason=None,
        detail=None,
        token_counts=TokenCounts.PER_CHUNK,
        chunk_times=times,
        chunk_tokens=(1,) * len(times),
    )
    return replace(whole, **fields)  # type: ignore[arg-type]  # its own fields


def failed(index: int, sent: float, reason: Reason = Reason.HTTP, detail: str = "HTTP 500: no") -> Record:
    return record(index, sent, reason=reason, detail=detail, chunk_times=(), chunk_tokens=(), num_output_tokens=None)


def unsent(index: int, due: float) -> Record:
    never = record(index, due, chunk_times=(), chunk_tokens=())
    return replace(never, allowed=None, sent=None, finished=None, num_output_tokens=None)


def result(*records: Record, name: str = "run", **fields: object) -> Result:
    whole = Result(
        name=name,
        began="2026-01-01T00:00:00+00:00",
        version="0",
        target={"url": "http://h", "model": "m"},
        load={"trace": "t", "content seed": name},
        notes=(),
        open_loop=True,
        warm_up_seconds=0.0,
        slo=None,
        loop_lags=(0.0001,),
        gave_up=None,
        records=records,
    )
    return replace(whole, **fields)  # type: ignore[arg-type]  # its own fields


def noisy_run(
    seed: int, count: int, *, slower: float = 1.0, name: str = "run", output: int = 40, **fields: object
) -> Result:
    """Latencies that drift, as queues do: a request is much like the one before. Every seed has the same lengths."""
    rng, lengths = np.random.default_rng(seed), np.random.default_rng(7).integers(2, output, count)
    level = 0.0
    records = []
    for index in range(count):
        level = 0.8 * level + float(rng.normal()) * 0.3
        gaps = tuple(float(gap) * slower for gap in rng.exponential(0.02, int(lengths[index])))
        records.append(record(index, index * 0.2, ttft=0.1 * float(np.exp(level / 2)) * slower, gaps=gaps))
    return result(*records, name=name, **fields)
