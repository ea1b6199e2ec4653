"""KV memory: the more there is, the more requests run together, until something else is the limit."""

from itertools import pairwise

from evenflow.report.charts import Chart, Series
from evenflow.study.experiment import Finding, Plot, ratio
from evenflow.study.lab import Lab
from evenflow.study.loads import chats
from evenflow.tune.settings import Settings

SHARES = (0.0625, 0.125, 0.25, 0.5, 1.0)


def measure(lab: Lab) -> Finding:
    requests = chats(lab, lab.count(800))
    engines = [Settings(lab.max_num_batched_tokens, lab.max_num_seqs, share, "evenflow-throughput") for share in SHARES]
    runs = [lab.play(requests, engine) for engine in engines]
    most = [run.tokens_per_second() for run in runs]
    gains = [after / before for before, after in pairwise(most)]
    rows = tuple(
        (f"{share:.4g}", f"{rate:.0f}", ratio(rate / most[0]), str(run.num_preemptions))
        for share, rate, run in zip(SHARES, most, runs, strict=True)
    )
    chart = Chart("output tokens per second", (Series("all at once", SHARES, most),), x_unit="", x_log=True)
    return Finding(
        f"lengths of real chats, all there from the beginning, {lab.max_num_seqs} seats",
        ("share of the KV memory", "output tokens/s", "against the least", "preemptions"),
        rows,
        (Plot("kv-share", chart, "share of the KV memory"),),
        f"The first doubling of KV memory gives {ratio(gains[0])} the throughput, the last one {ratio(gains[-1])}: "
        "memory buys throughput as long as it is what keeps requests out, and nothing after that.",
        gains[0] >= 1.1 and gains[-1] <= gains[0] and most[-1] >= most[0],
    )
