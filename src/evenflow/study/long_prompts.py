"""Limits for long prompts: how much of a step they may have while short ones wait."""

from random import Random

from evenflow.replay.record import Record
from evenflow.report.charts import Chart, Series
from evenflow.study.experiment import Finding, Plot, seconds
from evenflow.study.lab import Lab
from evenflow.study.loads import SEED, at_rate, capacity
from evenflow.tune.settings import Settings
from evenflow.workload.trace import TraceRequest

SHARES = (0.1, 0.25, 0.5, 0.75)
EVERY = 20


def measure(lab: Lab) -> Finding:
    short, long = lab.tokens(256), lab.tokens(8192)
    rng = Random(SEED)
    requests = [
        TraceRequest(0.0, long if index % EVERY == EVERY // 2 else short, lab.tokens(rng.randrange(64, 192)))
        for index in range(lab.count(800))
    ]
    seqs, budget = lab.max_num_seqs, lab.max_num_batched_tokens
    unlimited = Settings(budget, seqs, policy="vllm", policy_set=("interleave=decode-first",))
    limited = [
        Settings(
            budget,
            seqs,
            policy="vllm",
            policy_set=(
                "interleave=decode-first",
                "long_prompts=limited",
                f"long_prompt_tokens={long // 2}",
                f"long_prompt_share={share}",
                "max_long_prefills=1",
            ),
        )
        for share in SHARES
    ]
    load = at_rate(requests, 0.8 * capacity(lab, requests, unlimited))
    runs = [lab.play(load, engine) for engine in (*limited, unlimited)]

    def is_short(record: Record) -> bool:
        return record.num_prompt_tokens == short

    def is_long(record: Record) -> bool:
        return not is_short(record)

    names = [*(f"{share:.0%}" for share in SHARES), "no limit"]
    places = [*SHARES, 1.0]
    of_short, of_long = [run.ttft(95, is_short) for run in runs], [run.ttft(50, is_long) for run in runs]
    rows = tuple(
        (name, seconds(one), seconds(other)) for name, one, other in zip(names, of_short, of_long, strict=True)
    )
    chart = Chart(
        "TTFT",
        (Series("short prompts, P95", places, of_short), Series("long prompts, P50", places, of_long)),
        x_unit="",
        y_unit="s",
        y_log=True,
    )
    best = min(range(len(SHARES)), key=of_short.__getitem__)
    return Finding(
        f"one prompt in {EVERY} has {long} tokens, the others {short}; 80 % of capacity",
        ("share of long prompts", "TTFT P95 of short ones", "TTFT P50 of long ones"),
        rows,
        (Plot("long-prompts", chart, "share of a step's prefill tokens that long prompts may have (1: no limit)"),),
        f"With at most {names[best]} of a step for long prompts, short ones have a TTFT P95 of "
        f"{seconds(of_short[best])} instead of {seconds(of_short[-1])}, and long ones a median of "
        f"{seconds(of_long[best])} instead of {seconds(of_long[-1])}.",
        of_short[best] <= 0.8 * of_short[-1],
    )
