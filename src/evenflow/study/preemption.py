"""A victim of preemption: computed again, or copied to the host and back?

Recomputing costs what the prompt costs, copying what the link to the host gives. `auto` knows both from the engine's
own steps and copies, and takes the cheaper one.
"""

from evenflow.report.charts import Chart, Series
from evenflow.study.experiment import Finding, Plot
from evenflow.study.lab import Lab
from evenflow.study.loads import spread
from evenflow.tune.settings import Settings

SECONDS_PER_BLOCK = (1e-5, 1e-4, 1e-3, 3e-3, 1e-2)
CHOICES = ("recompute", "swap", "auto")
_CLOSE = 0.9


def measure(lab: Lab) -> Finding:
    load = spread(lab.count(400), lab.tokens(1024), lab.tokens(400), 0.5)
    rates: dict[str, list[float]] = {choice: [] for choice in CHOICES}
    preemptions = 0
    for link in SECONDS_PER_BLOCK:
        there = lab.with_host_memory(link)
        assert there is not None, "this experiment chooses its link"
        for choice in CHOICES:
            laid = ("reserve=prompt", f"preemption={choice}")
            run = there.play(load, Settings(lab.max_num_batched_tokens, lab.max_num_seqs, 0.25, "vllm", laid))
            rates[choice].append(run.tokens_per_second())
            preemptions += run.num_preemptions
    rows = tuple(
        (f"{link * 1e3:g} ms", *(f"{rates[choice][index]:.0f}" for choice in CHOICES))
        for index, link in enumerate(SECONDS_PER_BLOCK)
    )
    chart = Chart(
        "output tokens per second",
        [Series(choice, SECONDS_PER_BLOCK, rates[choice]) for choice in CHOICES],
        x_unit="s",
        x_log=True,
    )
    better = [max(rates["recompute"][i], rates["swap"][i]) for i in range(len(SECONDS_PER_BLOCK))]
    shares = [auto / best for auto, best in zip(rates["auto"], better, strict=True)]
    return Finding(
        f"a quarter of the KV memory for {len(load)} requests at once: {preemptions} preemptions in all runs together",
        ("copying a block takes", *(f"{choice}, tokens/s" for choice in CHOICES)),
        rows,
        (Plot("preemption", chart, "seconds that copying one KV block takes"),),
        f"Where a block is copied in {SECONDS_PER_BLOCK[0] * 1e3:g} ms swapping gives "
        f"{rates['swap'][0] / rates['recompute'][0]:.2f} times the throughput of recomputing, at "
        f"{SECONDS_PER_BLOCK[-1] * 1e3:g} ms {rates['swap'][-1] / rates['recompute'][-1]:.2f} times; auto comes to at "
        f"least {min(shares):.1%} of the better one on every link.",
        rates["swap"][0] > rates["recompute"][0]
        and rates["swap"][-1] < rates["recompute"][-1]
        and min(shares) >= _CLOSE
        and preemptions > 0,
    )
