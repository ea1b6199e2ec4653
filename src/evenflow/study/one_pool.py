"""Online and offline work on two engines: one pool in which offline fills what online leaves, or an engine for each?

An engine of its own keeps online work undisturbed and stands half empty. In one pool offline requests rank behind
online ones everywhere; they take what is left, and are still in the same steps.
"""

from collections.abc import Sequence
from dataclasses import replace

from evenflow.replay.record import Record
from evenflow.report.charts import Chart, Series
from evenflow.study.experiment import Finding, Plot, ratio, seconds
from evenflow.study.lab import Lab, Played
from evenflow.study.loads import SEED, at_rate, capacity, chats
from evenflow.tune.settings import Settings
from evenflow.workload.trace import TraceRequest

LOADS = (0.2, 0.4, 0.6, 0.8)
_RANKED = ("classes.interactive.rank=0", "classes.default.rank=1", "classes.batch.rank=2")
_NAMES = ("one pool", "one each")


def measure(lab: Lab) -> Finding:
    online = [replace(each, service_class="interactive") for each in chats(lab, lab.count(600))]
    settings = Settings(max(16, lab.max_num_batched_tokens // 4), lab.max_num_seqs, policy="vllm", policy_set=_RANKED)
    best = capacity(lab, online, settings)
    figures: dict[str, list[tuple[float, float, float]]] = {name: [] for name in _NAMES}
    for share in LOADS:
        arrivals = at_rate(online, share * best)
        span = arrivals[-1].arrival_seconds
        # More than two engines could do in that time.
        num_offline = int(2.5 * best * span) + 2 * lab.max_num_seqs
        offline = [replace(each, service_class="batch") for each in chats(lab, num_offline, SEED + 7)]
        together = lab.play(_merged(arrivals, offline), settings, replicas=2)
        figures["one pool"].append(_figures(together, together, span))
        figures["one each"].append(_figures(lab.play(arrivals, settings), lab.play(offline, settings), span))
    rows = tuple(
        (f"{share:.0%}", name, seconds(ttft), seconds(itl), f"{rate:.0f}")
        for index, share in enumerate(LOADS)
        for name, (ttft, itl, rate) in ((name, figures[name][index]) for name in _NAMES)
    )
    work = Chart("offline output tokens per second", _series(figures, 2), x_unit="")
    first = Chart("online TTFT P95", _series(figures, 0), x_unit="", y_unit="s")
    pairs = list(zip(figures["one pool"], figures["one each"], strict=True))
    gains = [pool[2] / alone[2] for pool, alone in pairs]
    costs = [pool[0] / alone[0] for pool, alone in pairs]
    return Finding(
        "two engines, online chats at a share of one engine's capacity, and more offline work than there is time for",
        ("online load", "", "online TTFT P95", "online ITL P99", "offline tokens/s"),
        rows,
        (Plot("one-pool", work, "online load, as a share of one engine"), Plot("one-pool-ttft", first, "online load")),
        f"In one pool offline work gets {ratio(gains[-1])} (at {LOADS[-1]:.0%} online load) to {ratio(gains[0])} (at "
        f"{LOADS[0]:.0%}) of what an engine of its own gives; the online TTFT P95 is {ratio(min(costs))} to "
        f"{ratio(max(costs))} of what it was alone.",
        min(gains) >= 1.1 and gains[0] > gains[-1] and max(costs) <= 4.0,
    )


def _merged(online: Sequence[TraceRequest], offline: Sequence[TraceRequest]) -> list[TraceRequest]:
    return sorted([*online, *offline], key=lambda each: each.arrival_seconds)


def _figures(online: Played, offline: Played, span: float) -> tuple[float, float, float]:
    rate = offline.tokens_per_second(_is_offline, within=span)
    return online.ttft(95, _is_online), online.itl(99, _is_online), rate


def _series(figures: dict[str, list[tuple[float, float, float]]], index: int) -> list[Series]:
    return [Series(name, LOADS, [each[index] for each in figures[name]]) for name in _NAMES]


def _is_online(record: Record) -> bool:
    return record.service_class == "interactive"


def _is_offline(record: Record) -> bool:
    return record.service_class == "batch"
