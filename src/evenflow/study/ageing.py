"""Short prompts first, and the starvation of long ones: ageing bounds who may pass whom.

In overload the queue grows, and whoever is always passed never runs. With ageing a request is passed only by those that
arrive at most `max_overtake` seconds later.
"""

from evenflow.replay.record import Record
from evenflow.report.charts import Chart, Series
from evenflow.study.experiment import Finding, Plot, seconds
from evenflow.study.lab import Lab
from evenflow.study.loads import at_rate, capacity, chats
from evenflow.tune.settings import Settings

NEVER = 1e6


def measure(lab: Lab) -> Finding:
    requests = chats(lab, lab.count(800))
    seqs = max(2, lab.max_num_seqs // 4)
    fcfs = Settings(lab.max_num_batched_tokens, seqs, policy="vllm")
    rate = capacity(lab, requests, fcfs)
    load = at_rate(requests, 1.3 * rate)
    span = load[-1].arrival_seconds
    overtakes = [span * share for share in (0.02, 0.1, 0.3)]
    names = ["fcfs", *(f"up to {seconds(each)}" for each in overtakes), "never ages"]
    engines = [fcfs]
    for overtake in (*overtakes, NEVER):
        # A full allowance at 2,000 prompt tokens.
        per_token = overtake / lab.tokens(2000)
        laid = ("order=shortest-prompt", f"max_overtake={overtake:.6g}", f"overtake_per_token={per_token:.6g}")
        engines.append(Settings(lab.max_num_batched_tokens, seqs, policy="vllm", policy_set=laid))
    runs = [lab.play(load, engine) for engine in engines]
    longest = sorted(each.num_prompt_tokens for each in requests)[-max(1, len(requests) // 10)]

    def is_long(record: Record) -> bool:
        return record.num_prompt_tokens >= longest

    mean, worst = [run.ttft(50) for run in runs], [run.ttft(100, is_long) for run in runs]
    rows = tuple((name, seconds(a), seconds(b)) for name, a, b in zip(names, mean, worst, strict=True))
    places = [0.0, *overtakes, 2 * overtakes[-1]]
    chart = Chart(
        "TTFT in overload",
        (Series("median of all", places, mean), Series("longest of the longest tenth", places, worst)),
        x_unit="s",
        y_unit="s",
    )
    return Finding(
        f"lengths of real chats at 130 % of capacity for {seconds(span)}, {seqs} seats",
        ("order", "TTFT P50 of all", "longest TTFT of the longest tenth"),
        rows,
        (Plot("ageing", chart, "max_overtake (leftmost: first come first served, rightmost: never ages)"),),
        f"Shortest-prompt-first cuts the median TTFT from {seconds(mean[0])} to {seconds(mean[-1])} and lets a long "
        f"prompt wait {seconds(worst[-1])} instead of {seconds(worst[0])}; with overtaking bounded by "
        f"{seconds(overtakes[1])} the longest wait is {seconds(worst[2])}, at a median of {seconds(mean[2])}.",
        mean[-1] < mean[0] and worst[-1] > worst[2] >= worst[0] * 0.9 and mean[2] < mean[0],
    )
