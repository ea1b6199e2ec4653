"""Static against continuous batching, by how much the lengths of answers differ.

A static batch keeps its seats until its longest answer ends; the seats of shorter ones stand empty. The work is the
same, so what continuous batching gains should grow with the spread of lengths, and be small without any.
"""

from evenflow.report.charts import Chart, Series
from evenflow.study.experiment import Finding, Plot, ratio
from evenflow.study.lab import Lab
from evenflow.study.loads import spread
from evenflow.tune.settings import Settings

VARIATIONS = (0.0, 0.25, 0.5, 1.0, 1.5)
_BUSY = 0.6


def measure(lab: Lab) -> Finding:
    seqs = min(32, lab.max_num_seqs)
    static = Settings(lab.max_num_batched_tokens, seqs, policy="static")
    continuous = Settings(lab.max_num_batched_tokens, seqs, policy="orca")
    rates = []
    for variation in VARIATIONS:
        load = spread(max(8 * seqs, lab.count(24 * seqs)), lab.tokens(256), lab.tokens(200), variation)
        runs = [lab.play(load, settings) for settings in (static, continuous)]
        # While there is always somebody waiting: how a load ends is not the question.
        rates.append([run.tokens_per_second(within=_BUSY * run.seconds) for run in runs])
    gains = [better / base for base, better in rates]
    rows = tuple(
        (f"{variation:g}", f"{base:.0f}", f"{better:.0f}", ratio(gain))
        for variation, (base, better), gain in zip(VARIATIONS, rates, gains, strict=True)
    )
    chart = Chart(
        "output tokens per second",
        (
            Series("static", VARIATIONS, [base for base, _ in rates]),
            Series("continuous", VARIATIONS, [better for _, better in rates]),
        ),
        x_unit="",
    )
    return Finding(
        f"{seqs} seats, prompts of {lab.tokens(256)} tokens, answers of {lab.tokens(200)} on average",
        ("variation of lengths", "static, tokens/s", "continuous, tokens/s", "gain"),
        rows,
        (Plot("static-batching", chart, "coefficient of variation of answer lengths"),),
        f"Continuous batching gives {ratio(gains[0])} the throughput of static batches when all answers are equally "
        f"long and {ratio(gains[-1])} when their lengths vary by {VARIATIONS[-1]:.0%}: what is gained is the spread.",
        gains[-1] >= 1.5 and gains[-1] >= 1.25 * gains[0] and gains[2] > gains[0],
    )
