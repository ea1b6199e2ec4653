"""Who gets a step's tokens, newcomers or running streams: the choice matters more the fuller the engine is."""

from evenflow.report.charts import Chart, Series
from evenflow.study.experiment import Finding, Plot, ratio, seconds
from evenflow.study.lab import Lab
from evenflow.study.loads import at_rate, capacity, chats
from evenflow.tune.settings import Settings

LOADS = (0.4, 0.6, 0.8, 0.95)
_BUSY = 2
CHOICES = {
    "prefill-first": ("interleave=prefill-first", "max_skipped_steps=1000"),
    "shared": ("interleave=shared", "min_prefill_share=0.25", "max_prefill_share=0.5"),
    "decode-first": ("interleave=decode-first",),
}


def measure(lab: Lab) -> Finding:
    requests = chats(lab, lab.count(800))
    # Few tokens a step: what one side gets, the other lacks.
    budget = max(16, lab.max_num_batched_tokens // 4)
    engines = {name: Settings(budget, lab.max_num_seqs, policy="vllm", policy_set=c) for name, c in CHOICES.items()}
    best = capacity(lab, requests, engines["decode-first"])
    loads = [at_rate(requests, share * best) for share in LOADS]
    runs = {name: [lab.play(load, engine) for load in loads] for name, engine in engines.items()}
    ttft = {name: [run.ttft(95) for run in played] for name, played in runs.items()}
    itl = {name: [run.itl(99) for run in played] for name, played in runs.items()}
    rows = tuple(
        (f"{share:.0%}", name, seconds(ttft[name][index]), seconds(itl[name][index]))
        for index, share in enumerate(LOADS)
        for name in CHOICES
    )
    first = Chart("TTFT P95", [Series(n, LOADS, ttft[n]) for n in CHOICES], x_unit="", y_unit="s", y_log=True)
    gaps = Chart("ITL P99", [Series(n, LOADS, itl[n]) for n in CHOICES], x_unit="", y_unit="s", y_log=True)
    pre, dec = ("prefill-first", "decode-first")
    costs = [mine / theirs for mine, theirs in zip(itl[pre], itl[dec], strict=True)]
    return Finding(
        f"lengths of real chats, {budget} tokens a step, {lab.max_num_seqs} seats",
        ("load", "interleave", "TTFT P95", "ITL P99"),
        rows,
        (Plot("interleaves-ttft", first, "share of capacity"), Plot("interleaves-itl", gaps, "share of capacity")),
        f"At {LOADS[_BUSY]:.0%} of capacity prefill-first has a TTFT P95 of {seconds(ttft[pre][_BUSY])} and an ITL "
        f"P99 of {seconds(itl[pre][_BUSY])}, decode-first {seconds(ttft[dec][_BUSY])} and "
        f"{seconds(itl[dec][_BUSY])}. Running streams pay for early first tokens, with gaps {ratio(costs[0])} as long "
        f"at {LOADS[0]:.0%} load and {ratio(costs[-1])} at {LOADS[-1]:.0%}.",
        ttft[pre][_BUSY] < ttft[dec][_BUSY] and itl[pre][_BUSY] > itl[dec][_BUSY] and costs[-1] > costs[0] > 1.0,
    )
