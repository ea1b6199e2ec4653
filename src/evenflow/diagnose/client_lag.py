"""The client was late: what it measured is about its own machine, and not about the server."""

from evenflow.core.request import RequestId
from evenflow.diagnose.finding import Finding, examples, settings
from evenflow.replay.assess import Assessed


def client_lag(assessed: Assessed) -> Finding | None:
    lag, allowed = assessed.verdict.dispatch_lag_p99, assessed.verdict.allowed_lag
    if lag is None or allowed is None or lag <= allowed:
        return None
    lags = [(record.dispatch_lag or 0.0, record.request_id) for record in assessed.result.records]
    late = [RequestId(name) for seconds, name in sorted(lags, reverse=True) if seconds > allowed]
    scale = max(0.05, round(allowed / lag, 2))
    return Finding(
        "client lag",
        f"requests were sent {lag * 1e3:.1f} ms late at P99; {allowed * 1e3:.1f} ms is what a valid result may have",
        {"dispatch lag P99 in seconds": lag, "allowed in seconds": allowed},
        (
            settings(
                "a rate that this client can keep; better, run it on a machine of its own",
                of="replay",
                rate_scale=scale,
            ),
        ),
        requests=examples(late),
        num_requests=len(late),
    )
