"""More was offered than served: each third of the run waits longer than the last, so figures are about its length."""

from evenflow.core.request import RequestId
from evenflow.diagnose.finding import Finding, examples, settings
from evenflow.replay.assess import Assessed

_LEAST_REQUESTS = 30
_TIMES_THE_FIRST = 3.0


def overload(assessed: Assessed) -> Finding | None:
    records = sorted((r for r in assessed.result.records if r.ttft is not None), key=lambda r: r.intended)
    if not assessed.result.open_loop or len(records) < _LEAST_REQUESTS:
        return None
    size = len(records) // 3
    thirds = [records[:size], records[size : 2 * size], records[-size:]]
    first, middle, last = (sum(r.ttft or 0.0 for r in third) / size for third in thirds)
    if not (last > middle > first and last >= _TIMES_THE_FIRST * first):
        return None
    offered = records[-1].intended - records[0].intended
    served = max(r.finished or 0.0 for r in records) - min(r.finished or 0.0 for r in records)
    scale = round(0.95 * min(1.0, offered / served), 2) if served > 0 else 0.5
    worst = sorted(records, key=lambda r: (-(r.ttft or 0.0), r.request_id))
    return Finding(
        "overload",
        f"mean TTFT rose from {first:.3g} s in the first third of the run to {last:.3g} s in the last: more came "
        "than was served",
        {"mean TTFT of the first third": first, "of the second": middle, "of the last": last},
        (settings("about the rate at which answers were finished", of="replay", rate_scale=scale),),
        requests=examples([RequestId(record.request_id) for record in worst]),
        num_requests=size,
    )
