"""The token budget of a step: throughput against the smoothness of streams.

A step takes as long as its tokens cost, and every running stream waits for it. A large budget reads the weights for
more tokens at once, and brings a prompt in with fewer steps, each of them a longer gap for the streams.
"""

from evenflow.report.charts import Chart, Series
from evenflow.study.experiment import Finding, Plot, seconds
from evenflow.study.lab import Lab
from evenflow.study.loads import at_rate, capacity, chats
from evenflow.tune.settings import Settings

SHARES = (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0)


def measure(lab: Lab) -> Finding:
    budgets = [max(16, int(share * lab.max_num_batched_tokens)) for share in SHARES]
    requests = chats(lab, lab.count(800))
    engines = [Settings(budget, lab.max_num_seqs, policy="vllm") for budget in budgets]
    most = [capacity(lab, requests, engine) for engine in engines]
    load = at_rate(requests, 0.6 * max(most))
    runs = [lab.play(load, engine) for engine in engines]
    ttft, itl = [run.ttft(95) for run in runs], [run.itl(99) for run in runs]
    rows = tuple(
        (str(budget), f"{rate:.3g}", seconds(first), seconds(gap))
        for budget, rate, first, gap in zip(budgets, most, ttft, itl, strict=True)
    )
    latency = Chart(
        "latency at 60 % of the best capacity",
        (Series("TTFT P95", budgets, ttft), Series("ITL P99", budgets, itl)),
        x_unit="",
        y_unit="s",
        x_log=True,
        y_log=True,
    )
    rates = Chart("requests per second when all wait", (Series("capacity", budgets, most),), x_unit="", x_log=True)
    return Finding(
        f"lengths of real chats, {lab.max_num_seqs} seats",
        ("tokens of a step", "capacity, requests/s", "TTFT P95", "ITL P99"),
        rows,
        (Plot("token-budget", latency, "tokens of a step"), Plot("token-budget-capacity", rates, "tokens of a step")),
        f"From {budgets[0]} to {budgets[-1]} tokens a step the engine can do {most[-1] / most[0]:.2f} times as much, "
        f"and TTFT P95 goes from {seconds(ttft[0])} to {seconds(ttft[-1])}; the streams pay with an ITL P99 of "
        f"{seconds(itl[-1])} instead of {seconds(itl[0])}.",
        most[-1] > most[0] and itl[-1] >= 1.5 * itl[0] and ttft[-1] < ttft[0],
    )
