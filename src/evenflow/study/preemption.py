"""A victim of preemption: computed again, or copied to the host and back?

Recomputing costs what the prompt costs, copying what the link to the host gives. `auto` knows both from the engine's
own steps and copies, and takes the cheaper one.
"""

from evenflow.report.charts import Chart, Series
from evenflow.study.experiment import Finding, Plot
from evenflow.study.lab import Lab
from evenflow.study.loads import spread
from evenflow.tune.settings import Settings
from evenflow.workload.trace import TraceRequest

SECONDS_PER_BLOCK = (1e-5, 1e-4, 1e-3, 3e-3, 1e-2)
CHOICES = ("recompute", "swap", "auto")
_CLOSE = 0.9
_REQUESTS = 400  # of the full study
_SEATFULS = 4  # with so many requests a seat, more of them fill no more memory


def measure(lab: Lab) -> Finding:
    load = _load(lab, lab.count(_REQUESTS))
    rates: dict[str, list[float]] = {choice: [] for choice in CHOICES}
    preemptions = 0
    for link in SECONDS_PER_BLOCK:
        there = lab.with_host_memory(link)
        assert there is not None, "this experiment chooses its link"
        for choice in CHOICES:
            run = there.play(load, _settings(lab, choice))
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
    sentence = (
        f"Where a block is copied in {SECONDS_PER_BLOCK[0] * 1e3:g} ms swapping gives "
        f"{rates['swap'][0] / rates['recompute'][0]:.2f} times the throughput of recomputing, at "
        f"{SECONDS_PER_BLOCK[-1] * 1e3:g} ms {rates['swap'][-1] / rates['recompute'][-1]:.2f} times; auto comes to at "
        f"least {min(shares):.1%} of the better one on every link."
    )
    return Finding(
        f"a quarter of the KV memory for {len(load)} requests at once: {preemptions} preemptions in all runs together",
        ("copying a block takes", *(f"{choice}, tokens/s" for choice in CHOICES)),
        rows,
        (Plot("preemption", chart, "seconds that copying one KV block takes"),),
        sentence if preemptions else _nothing_to_see(lab, len(load)),
        rates["swap"][0] > rates["recompute"][0]
        and rates["swap"][-1] < rates["recompute"][-1]
        and min(shares) >= _CLOSE
        and preemptions > 0,
        shown=preemptions > 0,
    )


def _load(lab: Lab, num_requests: int) -> list[TraceRequest]:
    return spread(num_requests, lab.tokens(1024), lab.tokens(400), 0.5)


def _settings(lab: Lab, choice: str) -> Settings:
    laid = ("reserve=prompt", f"preemption={choice}")
    return Settings(lab.max_num_batched_tokens, lab.max_num_seqs, 0.25, "vllm", laid)


def _nothing_to_see(lab: Lab, num_requests: int) -> str:
    """Without a preemption all runs are one, whatever the link. Looks for a size that has some."""
    said = f"No request was preempted: a quarter of the KV memory is enough for these {num_requests}"
    num = 2 * num_requests
    while num <= _SEATFULS * lab.max_num_seqs:
        if lab.play(_load(lab, num), _settings(lab, "recompute")).num_preemptions:
            return f"{said}; there are preemptions with {num} (--size {num / _REQUESTS:g})."
        num *= 2
    return (
        f"{said}, and for all that {lab.max_num_seqs} seats take. The experiment wants a device of less KV memory "
        "(--cost)."
    )
