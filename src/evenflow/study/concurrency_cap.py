"""The cap on running requests: too low and requests queue, too high and they push each other out of memory.

With memory taken as answers grow, more seats admit more than can finish: victims lose their work and compute it again.
"""

from evenflow.report.charts import Chart, Series
from evenflow.study.experiment import Finding, Plot, seconds
from evenflow.study.lab import Lab
from evenflow.study.loads import at_rate, spread
from evenflow.tune.settings import Settings

SHARES = (0.125, 0.25, 0.5, 1.0, 2.0)
KV_SHARE = 0.06
LOAD = 0.8
_AS_MUCH = 0.98


def measure(lab: Lab) -> Finding:
    caps = [max(2, int(share * lab.max_num_seqs)) for share in SHARES]
    requests = spread(lab.count(800), lab.tokens(128), lab.tokens(600), 0.5)
    engines = [Settings(lab.max_num_batched_tokens, cap, KV_SHARE, "vllm", ("reserve=prompt",)) for cap in caps]
    crowded = [lab.play(requests, engine) for engine in engines]
    most = [run.requests_per_second for run in crowded]
    preemptions = [run.num_preemptions for run in crowded]
    load = at_rate(requests, LOAD * max(most))
    ttft = [lab.play(load, engine).ttft(95) for engine in engines]
    rows = tuple(
        (str(cap), f"{rate:.3g}", str(lost), seconds(first))
        for cap, rate, lost, first in zip(caps, most, preemptions, ttft, strict=True)
    )
    waiting = Chart("TTFT P95", (Series("TTFT P95", caps, ttft),), x_unit="", y_unit="s", x_log=True, y_log=True)
    lost = Chart("preemptions", (Series("preemptions", caps, preemptions),), x_unit="", x_log=True)
    enough = next(index for index, rate in enumerate(most) if rate >= _AS_MUCH * max(most))
    return Finding(
        f"answers of {lab.tokens(600)} tokens on average and {KV_SHARE:.0%} of the KV memory; capacity and preemptions "
        f"when all {len(requests)} requests wait, TTFT at {LOAD:.0%} of the best capacity",
        ("seats", "capacity, requests/s", "preemptions", "TTFT P95"),
        rows,
        (Plot("concurrency-cap", waiting, "seats"), Plot("concurrency-cap-preemptions", lost, "seats")),
        f"With {caps[0]} seats nobody is preempted and requests queue for a seat (TTFT P95 {seconds(ttft[0])} at "
        f"{LOAD:.0%} load); {caps[enough]} seats do as much as any. {caps[-1]} let everybody in, and a crowd of "
        f"{len(requests)} then preempts {preemptions[-1]} times for {most[-1] / most[enough]:.0%} of that throughput.",
        preemptions[0] == 0 < preemptions[-1]
        and preemptions[-1] >= preemptions[enough]
        and ttft[0] >= 2.0 * ttft[-1]
        and most[-1] <= most[enough] / _AS_MUCH,
    )
