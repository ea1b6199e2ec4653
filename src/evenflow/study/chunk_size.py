"""The size of a prompt's pieces: one long prompt comes into running streams, and either it or they wait."""

from random import Random

from evenflow.report.charts import Chart, Series
from evenflow.study.experiment import Finding, Plot, seconds
from evenflow.study.lab import Lab
from evenflow.study.loads import SEED
from evenflow.tune.settings import Settings
from evenflow.workload.trace import TraceRequest

DIVISORS = (32, 16, 8, 4, 2, 1)


def measure(lab: Lab) -> Finding:
    long_tokens = lab.tokens(8192)
    streams = min(32, lab.max_num_seqs - 1)
    rng = Random(SEED)
    load = [TraceRequest(0.0, lab.tokens(64), lab.tokens(rng.randrange(800, 1200))) for _ in range(streams)]
    settled = lab.play(load, Settings(long_tokens + streams, streams + 1, policy="vllm"))
    arrives = settled.seconds / 4
    load.append(TraceRequest(arrives, long_tokens, 8))
    chunks = [max(8, long_tokens // divisor) for divisor in DIVISORS]
    gaps, firsts, num_preemptions = [], [], 0
    for chunk in chunks:
        run = lab.play(
            load, Settings(chunk + streams, streams + 1, policy="sarathi", policy_set=_budget(chunk + streams))
        )
        num_preemptions += run.num_preemptions
        long = next(record for record in run.records() if record.num_prompt_tokens == long_tokens)
        assert long.ttft is not None
        firsts.append(long.ttft)
        end = long.intended + long.ttft
        gaps.append(
            max(
                later - earlier
                for record in run.records()
                if record is not long
                for earlier, later in zip(record.chunk_times, record.chunk_times[1:], strict=False)
                if long.intended < later <= end
            )
        )
    rows = tuple(
        (str(chunk), seconds(gap), seconds(first)) for chunk, gap, first in zip(chunks, gaps, firsts, strict=True)
    )
    chart = Chart(
        "while a long prompt comes in",
        (Series("longest gap in a stream", chunks, gaps), Series("TTFT of the long prompt", chunks, firsts)),
        x_unit="",
        y_unit="s",
        x_log=True,
        y_log=True,
    )
    setting = f"a prompt of {long_tokens} tokens into {streams} streams"
    if num_preemptions:  # then the longest gap is that of who lost its seat
        setting += f"; {num_preemptions} preemptions, for which the KV memory is too small"
    return Finding(
        setting,
        ("tokens of a piece", "longest gap in a stream", "TTFT of the long prompt"),
        rows,
        (Plot("chunk-size", chart, "prompt tokens of a step"),),
        f"Fed whole, the long prompt holds every stream up for {seconds(gaps[-1])}; in pieces of {chunks[0]} tokens no "
        f"gap is longer than {seconds(gaps[0])}, and its own first token comes after {seconds(firsts[0])} instead of "
        f"{seconds(firsts[-1])}.",
        gaps[0] <= 0.5 * gaps[-1] and firsts[0] >= firsts[-1],
    )


def _budget(tokens: int) -> tuple[str, ...]:
    return (f"max_num_batched_tokens={tokens}",)
