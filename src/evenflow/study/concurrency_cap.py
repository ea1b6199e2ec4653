"""The cap on running requests: too low and requests queue, too high and they push each other out of memory.

With memory taken as answers grow, more seats admit more than can finish: victims lose their work and compute it again.
"""

from evenflow.report.charts import Chart, Series
from evenflow.study.experiment import Finding, Plot, seconds
from evenflow.study.lab import Lab
from evenflow.study.loads import at_rate, capacity, spread
from evenflow.tune.settings import Settings

SHARES = (0.125, 0.25, 0.5, 1.0, 2.0)
KV_SHARE = 0.06


def measure(lab: Lab) -> Finding:
    caps = [max(2, int(share * lab.max_num_seqs)) for share in SHARES]
    requests = spread(lab.count(800), lab.tokens(256), lab.tokens(400), 0.5)
    engines = [Settings(lab.max_num_batched_tokens, cap, KV_SHARE, "vllm", ("reserve=prompt",)) for cap in caps]
    most = [capacity(lab, requests, engine) for engine in engines]
    load = at_rate(requests, 0.9 * max(most))
    runs = [lab.play(load, engine) for engine in engines]
    ttft = [run.ttft(95) for run in runs]
    preemptions = [run.num_preemptions for run in runs]
    itl = [run.itl(99) for run in runs]
    rows = tuple(
        (str(cap), f"{rate:.3g}", seconds(first), seconds(gap), str(lost))
        for cap, rate, first, gap, lost in zip(caps, most, ttft, itl, preemptions, strict=True)
    )
    waiting = Chart("TTFT P95", (Series("TTFT P95", caps, ttft),), x_unit="", y_unit="s", x_log=True, y_log=True)
    lost = Chart("preemptions", (Series("preemptions", caps, preemptions),), x_unit="", x_log=True)
    return Finding(
        f"answers of {lab.tokens(400)} tokens on average, {KV_SHARE:.0%} of the KV memory, 90 % of the best capacity",
        ("seats", "capacity, requests/s", "TTFT P95", "ITL P99", "preemptions"),
        rows,
        (Plot("concurrency-cap", waiting, "seats"), Plot("concurrency-cap-preemptions", lost, "seats")),
        f"With {caps[0]} seats nobody is preempted and requests queue (TTFT P95 {seconds(ttft[0])}); with {caps[-1]} "
        f"they come in after {seconds(min(ttft))} or more and there are {preemptions[-1]} preemptions: the cap chooses "
        "which of the two the requests wait for.",
        preemptions[0] == 0 and preemptions[-1] > 0 and ttft[0] >= 2.0 * min(ttft),
    )
